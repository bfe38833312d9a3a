#include "simulator/hazards.h"

#include <algorithm>

namespace superneurons {
namespace {

std::size_t index(Stream stream) { return static_cast<std::size_t>(stream); }

/// To the byte: allocators round to units of their own, and whatever is added here would be taken
/// from a neighbour's users.
std::int64_t end_of(Range range) { return (range.offset + range.bytes).count; }

}  // namespace

Positions Users::all() const {
  Positions result = others;
  Position& own = result[index(writer_stream)];
  own = std::max(own, writer);
  return result;
}

void FormerUsers::release(Range range, const Users& users) {
  const Positions all = users.all();
  take(range);
  if (range.bytes.count > 0 && all != kNone)
    intervals_.insert_or_assign(range.offset.count, Interval{end_of(range), all});
}

Positions FormerUsers::take(Range range) {
  Positions result = kNone;
  const std::int64_t begin = range.offset.count;
  const std::int64_t end = end_of(range);
  if (begin >= end) return result;
  auto at = intervals_.upper_bound(begin);
  if (at != intervals_.begin() && std::prev(at)->second.end > begin) --at;
  while (at != intervals_.end() && at->first < end) {
    const std::int64_t first = at->first;
    const Interval interval = at->second;
    raise(result, interval.users);
    if (first < begin) {
      at->second.end = begin;
      ++at;
    } else {
      at = intervals_.erase(at);
    }
    if (interval.end > end) {
      intervals_.emplace_hint(at, end, interval);
      break;
    }
  }
  return result;
}

void WaitResolver::consider(Stream source, Position command, Cause cause) {
  Needed& best = needed_[index(source)];
  // Of two reasons to wait for the same command, missing data is the one to name.
  if (command > best.command || (command == best.command && cause == Cause::prefetch))
    best = {command, cause};
}

void WaitResolver::read(Users& users, Stream stream) {
  consider(users.writer_stream, users.writer, Cause::prefetch);
  Position& own = users.others[index(stream)];
  own = std::max(own, current());
}

void WaitResolver::write(Users& users, Stream stream) {
  consider(users.writer_stream, users.writer, Cause::prefetch);
  for (std::size_t i = 0; i < users.others.size(); ++i)
    consider(static_cast<Stream>(i), users.others[i], Cause::reuse);
  users = {current(), stream, kNone};
}

std::array<WaitResolver::Needed, kStreamNames.size()> WaitResolver::finish(Stream stream) {
  Positions& known = known_[index(stream)];
  needed_[index(stream)] = {};
  for (std::size_t i = 0; i < needed_.size(); ++i)
    if (needed_[i].command <= known[i]) needed_[i] = {};
  // At most two are left; one may imply the other.
  for (std::size_t i = 0; i < needed_.size(); ++i)
    for (std::size_t j = 0; j < needed_.size(); ++j)
      if (i != j && needed_[i].command != kNobody && needed_[j].command != kNobody &&
          ended_[static_cast<std::size_t>(needed_[i].command)][j] >= needed_[j].command)
        needed_[j] = {};
  for (std::size_t i = 0; i < needed_.size(); ++i) {
    if (needed_[i].command == kNobody) continue;
    raise(known, ended_[static_cast<std::size_t>(needed_[i].command)]);
    known[i] = std::max(known[i], needed_[i].command);
  }
  known[index(stream)] = current();
  ended_.push_back(known);
  const auto result = needed_;
  needed_ = {};
  return result;
}

}  // namespace superneurons
