#include "policies/rewrite.h"

#include <algorithm>

#include "memory/footprints.h"
#include "memory/placement.h"

namespace superneurons {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool has(std::span<const Value> values, TensorId id) {
  for (const Value& value : values)
    if (value.tensor == id) return true;
  return false;
}

template <class Visit>
void visit_touches(const PolicyContext& context, const Plan& plan, const Visit& visit) {
  std::vector<bool> ran(context.trace.ops.size(), false);
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    if (step.kind != StepKind::run) {
      visit(step.tensor(),
            Touch{i, step.kind, step.kind == StepKind::offload, step.kind == StepKind::prefetch});
      continue;
    }
    const bool rerun = ran[step.subject];
    ran[step.subject] = true;
    const OpFlow& flow = context.flow[step.op()];
    const std::span<const Value> makes = rerun ? flow.rerun_makes : flow.makes;
    const std::span<const Value> needs = rerun ? flow.rerun_needs : flow.needs;
    for (const Value& need : needs) {
      const bool made = has(makes, need.tensor) && is_made(context, step, need);
      visit(need.tensor, Touch{i, StepKind::run, true, made});
    }
    for (const Value& made : makes)
      if (!has(needs, made.tensor) && is_made(context, step, made))
        visit(made.tensor, Touch{i, StepKind::run, false, true});
  }
}

bool can_leave(Role role) {
  return role == Role::activation || role == Role::saved || role == Role::temporary;
}

}  // namespace

Touches::Touches(const PolicyContext& context, const Plan& plan)
    : first_(context.trace.tensors.size() + 1, 0) {
  std::vector<std::pair<TensorId, Touch>> all;
  all.reserve(3 * plan.steps.size());
  visit_touches(context, plan, [&](TensorId tensor, const Touch& touch) {
    ++first_[tensor.index + 1];
    all.emplace_back(tensor, touch);
  });
  for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
  touches_.resize(all.size());
  std::vector<std::uint32_t> next(first_.begin(), first_.end() - 1);
  for (const auto& [tensor, touch] : all) touches_[next[tensor.index]++] = touch;
}

std::span<const Value> needs_of(const PolicyContext& context, const PlanStep& step, bool rerun) {
  const OpFlow& flow = context.flow[step.op()];
  return rerun ? flow.rerun_needs : flow.needs;
}

bool is_made(const PolicyContext& context, const PlanStep& step, const Value& value) {
  if (!step.discard.empty() && contains(step.discard, value.tensor)) return false;
  return !context.flow[step.op()].omits ||
         !contains(context.trace[step.op()].choices[step.choice].omits, value.tensor);
}

std::vector<bool> reruns(const Trace& trace, const Plan& plan) {
  std::vector<bool> ran(trace.ops.size(), false), rerun(plan.steps.size(), false);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.steps[i].kind != StepKind::run) continue;
    rerun[i] = ran[plan.steps[i].subject];
    ran[plan.steps[i].subject] = true;
  }
  return rerun;
}

std::vector<std::uint32_t> runs_before(const Plan& plan) {
  std::vector<std::uint32_t> runs{0};
  for (const PlanStep& step : plan.steps)
    runs.push_back(runs.back() + (step.kind == StepKind::run ? 1 : 0));
  return runs;
}

std::vector<Nanoseconds> clock_of(const PolicyContext& context, const Plan& plan) {
  std::vector<Nanoseconds> clock{0_ns};
  clock.reserve(plan.steps.size() + 1);
  for (const PlanStep& step : plan.steps) {
    Nanoseconds ns{};
    if (step.kind == StepKind::run)
      ns = context.footprints ? context.footprints->ways(step.subject)[step.choice].ns
                              : context.trace[step.op()].choices[step.choice].ns;
    clock.push_back(later(clock.back(), ns));
  }
  return clock;
}

Nanoseconds compute_time(const Footprints& footprints, const Plan& plan) {
  Nanoseconds sum{};
  for (const PlanStep& step : plan.steps)
    if (step.kind == StepKind::run) sum = later(sum, footprints.ways(step.subject)[step.choice].ns);
  return sum;
}

std::vector<std::uint32_t> layer_step_starts(const Trace& trace, const Plan& plan) {
  std::vector<std::uint32_t> first;
  const Op* before = nullptr;
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.steps[i].kind != StepKind::run) continue;
    const Op& op = trace[plan.steps[i].op()];
    if (before == nullptr || op.layer.empty() || op.layer != before->layer ||
        op.phase != before->phase)
      first.push_back(i);
    before = &op;
  }
  return first;
}

std::vector<std::uint32_t> run_steps(const Plan& plan) {
  std::vector<std::uint32_t> steps;
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i)
    if (plan.steps[i].kind == StepKind::run) steps.push_back(i);
  return steps;
}

std::uint32_t back(std::span<const std::uint32_t> steps, std::uint32_t step, std::uint32_t count) {
  const auto after = std::upper_bound(steps.begin(), steps.end(), step) - steps.begin();
  return steps[after > count ? after - 1 - count : 0];
}

std::vector<bool> pinned(const Trace& trace, const Plan& plan) {
  std::vector<bool> result(trace.tensors.size(), false);
  for (std::size_t i = 0; i < trace.carry.size(); ++i)
    if (plan.begin[i].place == Place::device) result[trace.carry[i].end.index] = true;
  return result;
}

std::vector<Idle> idle_into_backward(const PolicyContext& context, const Plan& plan) {
  const Trace& trace = context.trace;
  const Touches touches(context, plan);
  const std::vector<bool> rerun = reruns(trace, plan);
  const auto backward = [&](std::uint32_t step) {
    const Phase phase = trace[plan.steps[step].op()].phase;
    return rerun[step] || phase == Phase::backward || phase == Phase::recompute;
  };
  std::vector<bool> carried(trace.tensors.size(), false);
  for (const Carry& carry : trace.carry)
    carried[carry.start.index] = carried[carry.end.index] = true;
  std::vector<Idle> result;
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t) {
    if (carried[t] || !can_leave(trace.tensors[t].role)) continue;
    const std::span<const Touch> of = touches[{t}];
    const auto moves = [](const Touch& touch) {
      return touch.kind != StepKind::run && touch.kind != StepKind::free;
    };
    if (std::any_of(of.begin(), of.end(), moves)) continue;
    Idle idle{{t}};
    for (std::size_t i = 0; i + 1 < of.size(); ++i) {
      const Touch &now = of[i], &next = of[i + 1];
      if (now.needs) ++idle.readers;
      if (now.makes) {
        idle.made = now.step;
        idle.readers = 0;
        for (const Value& value : context.flow[plan.steps[now.step].op()].makes)
          if (value.tensor == idle.tensor) idle.version = value.version;
      }
      idle.before = now.step;
      idle.after = next.step;
      if (now.kind == StepKind::run && next.kind == StepKind::run && next.needs &&
          !backward(now.step) && backward(next.step))
        result.push_back(idle);
    }
  }
  return result;
}

std::size_t Edits::insert(std::uint32_t place, Rank rank, PlanStep step, std::string why) {
  insertions_.push_back({place, rank, false, std::move(step), std::move(why)});
  return insertions_.size() - 1;
}

Plan Edits::apply(const Plan& plan) && {
  // By place, rank, and the order in which they came: all in one number that sorts fast.
  std::vector<std::uint64_t> order;
  order.reserve(insertions_.size());
  for (std::size_t i = 0; i < insertions_.size(); ++i)
    if (!insertions_[i].cancelled)
      order.push_back((std::uint64_t{insertions_[i].place} << 3 |
                       static_cast<std::uint64_t>(insertions_[i].rank))
                          << 29 |
                      i);
  std::sort(order.begin(), order.end());
  Plan result{plan.trace_hash, plan.policy, plan.allocator, plan.budget, plan.begin, {}, {}};
  result.steps.reserve(plan.steps.size() + insertions_.size());
  std::size_t next = 0, reason = 0;
  const auto here = [&] { return static_cast<std::uint32_t>(result.steps.size()); };
  for (std::uint32_t i = 0; i <= plan.steps.size(); ++i) {
    for (; next < order.size() && order[next] >> 32 == i; ++next) {
      Insertion& insertion = insertions_[order[next] & 0x1fffffff];
      if (!insertion.why.empty()) result.reasons.push_back({here(), std::move(insertion.why)});
      result.steps.push_back(std::move(insertion.step));
    }
    const bool stays = i < plan.steps.size() && !removed_[i];
    for (; reason < plan.reasons.size() && plan.reasons[reason].step == i; ++reason)
      if (stays) result.reasons.push_back({here(), plan.reasons[reason].text});
    if (stays) result.steps.push_back(plan.steps[i]);
  }
  return result;
}

bool fits(const PolicyContext& context, const Plan& plan) {
  return fits(context, plan, context.budget.device);
}

bool fits(const PolicyContext& context, const Plan& plan, Bytes arena) {
  if (stopped(context)) return false;
  return context.footprints ? context.footprints->fits(plan, arena)
                            : fits(context.trace, plan, arena);
}

std::optional<Bytes> arena_of(const PolicyContext& context, const Plan& plan) {
  if (context.footprints) return context.footprints->smallest_arena(plan);
  const Result<Bytes> arena = smallest_arena(context.trace, plan);
  return arena ? std::optional(*arena) : std::nullopt;
}

std::optional<std::vector<Bytes>> rooms_of(const PolicyContext& context, const Plan& plan,
                                           Bytes arena) {
  if (context.footprints) return context.footprints->workspace_rooms(plan, arena);
  Result<std::vector<Bytes>> rooms = workspace_rooms(context.trace, plan, arena);
  return rooms ? std::optional(*std::move(rooms)) : std::nullopt;
}

Plan smaller_of(const PolicyContext& context, Plan a, const Plan& b) {
  if (stopped(context)) return a;
  const std::optional<Bytes> of_a = arena_of(context, a), of_b = arena_of(context, b);
  return of_a && of_b && *of_b < *of_a ? b : a;
}

std::size_t fewest_that_fit(const PolicyContext& context, std::size_t all,
                            const std::function<Plan(std::size_t)>& build, std::size_t grain) {
  std::size_t low = 0, high = all;  // high is not known to fit if it is `all`
  while (low + grain <= high && !stopped(context)) {
    const std::size_t middle = low + (high - low) / 2;
    if (fits(context, build(middle))) high = middle;
    else low = middle + 1;
  }
  return high;
}

}  // namespace superneurons
