#include "replay/surrogate_pieces.h"

#include <algorithm>
#include <map>

namespace superneurons {
namespace {

/// Disjoint byte ranges, begin -> end, never touching each other.
using Ranges = std::map<std::int64_t, std::int64_t>;

void insert(Ranges& ranges, std::int64_t begin, std::int64_t end) {
  auto at = ranges.upper_bound(begin);
  if (at != ranges.begin() && std::prev(at)->second >= begin) --at;
  while (at != ranges.end() && at->first <= end) {
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = ranges.erase(at);
  }
  ranges[begin] = end;
}

bool is_once(const Op& op, TensorId tensor) {
  return std::find(op.once.begin(), op.once.end(), tensor) != op.once.end();
}

void add_pieces(const Op& op, std::uint32_t read, const Ranges& defined,
                std::vector<SurrogatePiece>& pieces) {
  const Access& access = op.reads[read];
  const std::int64_t begin = access.offset.count;
  const std::int64_t end = begin + access.length.count;
  const bool once = is_once(op, access.tensor);
  for (const auto& [from, to] : defined) {
    const std::int64_t first = std::max(from, begin);
    const std::int64_t last = std::min(to, end);
    if (first < last) pieces.push_back({read, {first - begin}, {last - first}, once});
  }
}

}  // namespace

std::vector<std::vector<SurrogatePiece>> surrogate_pieces(const Trace& trace) {
  std::vector<Ranges> at_start(trace.tensors.size());
  for (const Carry& carry : trace.carry)
    insert(at_start[carry.start.index], 0, trace[carry.start].bytes.count);
  // What is defined at the end is all that is defined at the next start, so repeat until that
  // agrees; each round can only take ranges away.
  while (true) {
    std::vector<Ranges> defined = at_start;
    std::vector<std::vector<SurrogatePiece>> pieces(trace.ops.size());
    for (std::size_t i = 0; i < trace.ops.size(); ++i) {
      const Op& op = trace.ops[i];
      for (std::uint32_t read = 0; read < op.reads.size(); ++read)
        add_pieces(op, read, defined[op.reads[read].tensor.index], pieces[i]);
      for (const Access& write : op.writes)
        insert(defined[write.tensor.index], write.offset.count,
               write.offset.count + write.length.count);
    }
    std::vector<Ranges> next(trace.tensors.size());
    for (const Carry& carry : trace.carry) next[carry.start.index] = defined[carry.end.index];
    if (next == at_start) return pieces;
    at_start = std::move(next);
  }
}

}  // namespace superneurons
