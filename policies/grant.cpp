#include "policies/grant.h"

#include <fmt/core.h>

#include <algorithm>

#include "ir/files.h"
#include "memory/placement.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

Bytes parts_of(Bytes bytes, int part, int whole) {
  return {static_cast<std::int64_t>(static_cast<__int128>(bytes.count) * part / whole)};
}

/// Decides on a choice for each op that a plan runs and has several to choose from.
class Granter {
 public:
  Granter(const PolicyContext& context, const Plan& plan, const ChoiceRule& rule)
      : context_(context), plan_(plan), ways_(context.trace.ops.size()) {
    for (std::uint32_t i = 0; i < ways_.size(); ++i)
      if (const Op& op = context.trace.ops[i]; op.choices.size() > 1)
        ways_[i] = choices_by_speed(op, rule);
  }

  /// The plan in which each op takes the fastest choice whose workspace is within its room, or the
  /// one of least workspace.
  Plan grant(const std::vector<Bytes>& room_of_op) const {
    Plan plan = plan_;
    for (PlanStep& step : plan.steps)
      if (step.kind == StepKind::run) step.choice = pick(step.subject, room_of_op[step.subject]);
    if (context_.explain) explain(plan, room_of_op);
    return plan;
  }

  Plan least() const { return grant(std::vector<Bytes>(ways_.size(), 0_B)); }

  /// Room beside the op's operands and what stays on the device.
  std::vector<Bytes> rooms_alone(Bytes budget) const {
    const Trace& trace = context_.trace;
    const std::vector<bool> stays = pinned(trace, plan_);
    Bytes homes{};
    for (std::uint32_t t = 0; t < stays.size(); ++t)
      if (stays[t]) homes += trace.tensors[t].bytes;
    std::vector<Bytes> rooms(ways_.size());
    for (std::uint32_t i = 0; i < ways_.size(); ++i) {
      if (ways_[i].size() < 2) continue;
      Choice free = trace.ops[i].choices[ways_[i].front()];
      free.workspace = 0_B;
      rooms[i] = budget - homes - working_set(trace, trace.ops[i], free);
      for (const TensorId operand : operands(trace.ops[i]))
        if (stays[operand.index]) rooms[i] += trace[operand].bytes;
    }
    return rooms;
  }

  /// The least room over the runs of each op.
  std::vector<Bytes> rooms_of_ops(const std::vector<Bytes>& room_of_step) const {
    std::vector<Bytes> rooms(ways_.size(), {std::int64_t{1} << 62});
    for (std::uint32_t i = 0; i < plan_.steps.size(); ++i)
      if (plan_.steps[i].kind == StepKind::run)
        rooms[plan_.steps[i].subject] = std::min(rooms[plan_.steps[i].subject], room_of_step[i]);
    return rooms;
  }

 private:
  std::uint32_t pick(std::uint32_t op, Bytes room) const {
    if (ways_[op].empty()) return 0;
    const std::vector<Choice>& choices = context_.trace.ops[op].choices;
    for (const std::uint32_t way : ways_[op])
      if (choices[way].workspace <= room) return way;
    return least_workspace(context_.trace.ops[op], ways_[op]);
  }

  static std::vector<TensorId> operands(const Op& op) {
    std::vector<TensorId> result;
    for (const std::vector<Access>* accesses : {&op.reads, &op.writes})
      for (const Access& access : *accesses) result.push_back(access.tensor);
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }

  /// A sentence at the first run of each op that does not do as the incoming plan said.
  void explain(Plan& plan, const std::vector<Bytes>& room_of_op) const {
    std::vector<Reason> reasons;
    const std::vector<bool> rerun = reruns(context_.trace, plan);
    for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
      const PlanStep& step = plan.steps[i];
      if (step.kind != StepKind::run || rerun[i] || step.choice == plan_.steps[i].choice) continue;
      const Op& op = context_.trace[step.op()];
      const Choice& choice = op.choices[step.choice];
      reasons.push_back(
          {i, fmt::format("{} takes {} (workspace {}, {}): {} is left for it", op.name,
                          choice.algorithm, format_bytes(choice.workspace), format_time(choice.ns),
                          format_bytes(std::max(room_of_op[step.subject], 0_B)))});
    }
    std::vector<Reason> merged;
    std::merge(plan.reasons.begin(), plan.reasons.end(), reasons.begin(), reasons.end(),
               std::back_inserter(merged),
               [](const Reason& a, const Reason& b) { return a.step < b.step; });
    plan.reasons = std::move(merged);
  }

  const PolicyContext& context_;
  const Plan& plan_;
  std::vector<std::vector<std::uint32_t>> ways_;  // by op: fastest first; empty if there is one
};

}  // namespace

Plan grant_what_is_left(const PolicyContext& context, const Plan& plan, const ChoiceRule& rule) {
  const Granter granter(context, plan, rule);
  Plan least = granter.least();
  if (stopped(context)) return least;
  Bytes arena = context.budget.device;
  std::optional<std::vector<Bytes>> rooms = rooms_of(context, least, arena);
  if (!rooms) {
    const std::optional<Bytes> needed = arena_of(context, least);
    if (!needed || *needed <= arena || stopped(context)) return least;
    arena = *needed;
    rooms = rooms_of(context, least, arena);
  }
  if (!rooms) return least;
  const std::vector<Bytes> of_ops = granter.rooms_of_ops(*rooms);
  constexpr int kParts = 8;
  int low = 0, high = kParts;  // `low` parts of each room fit
  Plan best = std::move(least);
  for (int parts = kParts; low < high && !stopped(context); parts = (low + high + 1) / 2) {
    std::vector<Bytes> some = of_ops;
    for (Bytes& room : some) room = parts_of(room, parts, kParts);
    Plan granted = granter.grant(some);
    if (fits(context, granted, arena)) {
      low = parts;
      best = std::move(granted);
    } else {
      high = parts - 1;
    }
  }
  return best;
}

Plan grant_alone(const PolicyContext& context, const Plan& plan, const ChoiceRule& rule,
                 Bytes room) {
  const Granter granter(context, plan, rule);
  return granter.grant(granter.rooms_alone(room));
}

Plan grant_least(const PolicyContext& context, const Plan& plan, const ChoiceRule& rule) {
  return Granter(context, plan, rule).least();
}

}  // namespace superneurons
