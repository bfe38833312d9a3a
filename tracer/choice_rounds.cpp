#include "tracer/choice_rounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

#include "tracer/activity.h"

namespace superneurons {
namespace {

/// All that decides how long an op's choices take.
std::string key_of(const Op& op) {
  std::string key = op.kind;
  for (const auto& [name, value] : op.attributes) key += fmt::format(" {}={}", name, value);
  for (const Choice& choice : op.choices)
    key += fmt::format(" {}/{}/{}", choice.algorithm, choice.math, choice.workspace.count);
  return key;
}

}  // namespace

ChoiceRounds::ChoiceRounds(const Trace& trace) {
  std::map<std::string, std::uint32_t> known;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    const auto [found, added] =
        known.emplace(key_of(op), static_cast<std::uint32_t>(groups_.size()));
    group_of_.push_back(found->second);
    if (added) {
      Group& group = groups_.emplace_back();
      group.spans.resize(op.choices.size());
      group.dropped.resize(op.choices.size(), false);
      group.recorded = op.recorded;
      for (const Choice& choice : op.choices) group.deterministic.push_back(choice.deterministic);
    }
    groups_[found->second].ops.push_back(i);
  }
}

std::size_t ChoiceRounds::left() const {
  std::size_t rounds = 0;
  for (const Group& group : groups_) {
    const std::size_t choices = group.spans.size() - group.next, members = group.ops.size();
    rounds = std::max(rounds, (choices + members - 1) / members);
  }
  return rounds;
}

std::vector<std::uint32_t> ChoiceRounds::next() {
  std::vector<std::uint32_t> choice_of(group_of_.size(), 0);
  for (Group& group : groups_) {
    const std::size_t some = std::min(group.ops.size(), group.spans.size() - group.next);
    const std::uint32_t fastest = some == 0 ? group.fastest() : 0;
    for (std::size_t i = 0; i < group.ops.size(); ++i)
      choice_of[group.ops[i]] =
          some == 0 ? fastest : static_cast<std::uint32_t>(group.next + i % some);
    group.next += some;
  }
  return choice_of;
}

void ChoiceRounds::add(OpId op, std::uint32_t choice, Nanoseconds span) {
  groups_[group_of_[op.index]].spans[choice].push_back(span);
}

void ChoiceRounds::drop(OpId op, std::uint32_t choice) {
  groups_[group_of_[op.index]].dropped[choice] = true;
}

std::uint32_t ChoiceRounds::Group::fastest() const {
  std::uint32_t best = recorded;
  std::tuple<bool, bool, Nanoseconds> rank_of_best(true, true, Nanoseconds{});
  for (std::uint32_t i = 0; i < spans.size(); ++i) {
    if (dropped[i]) continue;
    // Deterministic ones first; then those with a time, as 0 says that nothing was seen.
    const Nanoseconds time = spans[i].empty() ? Nanoseconds{} : median(spans[i]);
    const std::tuple<bool, bool, Nanoseconds> rank(!deterministic[i], spans[i].empty(), time);
    if (dropped[best] || i == 0 || rank < rank_of_best) {
      best = i;
      rank_of_best = rank;
    }
  }
  return best;
}

Status ChoiceRounds::store(Trace& trace) const {
  for (const Group& group : groups_) {
    const std::uint32_t best = group.fastest();
    if (group.dropped[best] || !group.deterministic[best]) {
      const Op& op = trace.ops[group.ops.front()];
      return Error{
          .code = ErrorCode::device,
          .message = fmt::format("{} ({}): no deterministic choice runs here", op.name, op.kind)};
    }
    for (const std::uint32_t index : group.ops) {
      Op& op = trace.ops[index];
      std::vector<Choice> kept;
      for (std::uint32_t i = 0; i < op.choices.size(); ++i) {
        if (group.dropped[i]) continue;
        if (i == best) op.recorded = static_cast<std::uint32_t>(kept.size());
        kept.push_back(std::move(op.choices[i]));
        kept.back().ns = group.spans[i].empty() ? Nanoseconds{} : median(group.spans[i]);
      }
      op.choices = std::move(kept);
    }
  }
  return Ok{};
}

}  // namespace superneurons
