// From a request to a plan: passes, the checker after each, placement after the last, and the floor
// where it does not fit.
#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "ir/check.h"
#include "ir/files.h"
#include "memory/allocator.h"
#include "memory/placement.h"
#include "policies/exec_policy.h"
#include "policies/policy.h"
#include "policies/request.h"

namespace superneurons {
namespace {

inline constexpr Budget kEndless{{std::int64_t{1} << 62}, {std::int64_t{1} << 62}};

/// How the facts that lack could be had.
std::string_view remedy(const Trace& trace) {
  if (trace.lowering != "activities") return "";
  return " (of any CUDA program only kernels, copies, ranges and driver allocations are seen; what "
         "ops read and write is known of PyTorch scripts, superneurons trace -o T -- python "
         "SCRIPT, and of the built-in networks, superneurons trace NETWORK -o T)";
}

std::optional<Error> refuse_lacking_facts(const Trace& trace, const PolicyEntry& entry) {
  for (const Fact fact : entry.needs) {
    if (trace.capability(fact) != Capability::none) continue;
    return Error{
        ErrorCode::bad_usage,
        fmt::format("policy {} needs to know {}, which trace '{}' does not tell{}", entry.name,
                    kFactNames[static_cast<std::size_t>(fact)], trace.name, remedy(trace))};
  }
  return {};
}

bool stopped(const PlanRequest& request) {
  return request.stop != nullptr && request.stop->load(std::memory_order_relaxed);
}

Error cancelled() { return {ErrorCode::cancelled, "stopped while planning"}; }

/// `percent` of it, as far as numbers go.
Bytes share(Bytes bytes, std::int64_t percent) {
  const auto product = static_cast<__int128>(bytes.count) * percent / 100;
  return {static_cast<std::int64_t>(std::min<__int128>(product, kEndless.device.count))};
}

/// check() with no limit on bytes: passes after this one may still bring it under the budget.
std::optional<Error> unlawful(const Trace& trace, Plan& plan, std::string_view pass) {
  const Budget budget = std::exchange(plan.budget, kEndless);
  const std::optional<Violation> violation = check(trace, plan);
  plan.budget = budget;
  if (!violation) return {};
  Error error = to_error(*violation);
  error.message = fmt::format("policy {} made an unlawful plan: {}", pass, error.message);
  return error;
}

/// What all alternatives of a request start from.
struct Start {
  Dataflow flow;
  Plan plan;
};

Result<Plan> run_passes(const Trace& trace, const DeviceProfile& profile,
                        const PlanRequest& request, const Predict& predict, const Start& start,
                        const std::vector<Pass>& passes) {
  Plan plan = start.plan;
  for (const Pass& pass : passes) {
    if (stopped(request)) return cancelled();
    const PolicyContext context{trace,   start.flow,   profile,         request.budget,
                                predict, pass.options, request.explain, request.stop};
    Result<Plan> next = pass.entry->plan(context, plan);
    if (!next) return next;
    if (stopped(request)) return cancelled();
    plan = std::move(*next);
    if (std::optional<Error> error = unlawful(trace, plan, pass.entry->name)) return *error;
  }
  return plan;
}

/// How good a plan is: one that fits before one that does not; of those that fit the fastest, if
/// there is a simulator to ask; of those that do not the one of smallest arena.
struct Merit {
  bool fits = false;
  std::int64_t cost = 0;

  bool beats(const Merit& other) const { return fits != other.fits ? fits : cost < other.cost; }
};

Merit merit_of(const Trace& trace, const Plan& plan, const Predict& predict) {
  if (place(trace, plan, plan.budget.device)) {
    const Result<Prediction> prediction =
        predict ? predict(plan) : Result<Prediction>(Prediction{});
    return {true, prediction ? prediction->step_ns.count : kEndless.device.count};
  }
  const Result<Bytes> arena = smallest_arena(trace, plan);
  return {false, arena ? arena->count : kEndless.device.count};
}

/// Ops planned for, over all alternatives, from which on one that fits is good enough.
inline constexpr std::size_t kEffort = 20'000;

/// The best plan of all alternatives, the first of equals. Of a long trace not all are tried, once
/// one fits.
Result<Plan> run_policy(const Trace& trace, const DeviceProfile& profile,
                        const PlanRequest& request, const Predict& predict) {
  const Result<std::vector<std::vector<Pass>>> alternatives = parse_policy(request.policy);
  if (!alternatives) return alternatives.error();
  if (std::optional<Error> error = refuse_other_lowering(trace, request.policy)) return *error;
  for (const std::vector<Pass>& passes : *alternatives)
    for (const Pass& pass : passes)
      if (std::optional<Error> error = refuse_lacking_facts(trace, *pass.entry)) return *error;
  Start start{analyze(trace), keep_all_plan(trace)};
  start.plan.allocator = request.allocator;
  start.plan.budget = request.budget;
  std::optional<Plan> best;
  Merit merit;
  std::size_t effort = 0;
  for (const std::vector<Pass>& passes : *alternatives) {
    if (merit.fits && effort >= kEffort) break;
    effort += trace.ops.size();
    Result<Plan> plan = run_passes(trace, profile, request, predict, start, passes);
    if (!plan || alternatives->size() == 1) return plan;
    const Merit other = merit_of(trace, *plan, predict);
    if (best && !other.beats(merit)) continue;
    best = std::move(*plan);
    merit = other;
  }
  return std::move(*best);
}

/// The policy's best plan, checked but not yet held against the budget.
Result<Plan> best_effort(const Trace& trace, const DeviceProfile& profile,
                         const PlanRequest& request, const Predict& predict) {
  if (find_allocator(request.allocator) == nullptr) {
    std::vector<std::string> names;
    for (const AllocatorEntry& entry : allocators()) names.emplace_back(entry.name);
    const std::string near = nearest_name(request.allocator, names);
    return Error{ErrorCode::bad_usage,
                 fmt::format("unknown allocator '{}'{}", request.allocator,
                             near.empty() ? "" : " (did you mean " + near + "?)")};
  }
  Result<Plan> plan = is_exec(request.policy) ? exec_policy(trace, profile, request)
                                              : run_policy(trace, profile, request, predict);
  if (!plan) return plan;
  plan->policy = request.policy;
  plan->allocator = request.allocator;
  plan->budget = request.budget;
  if (is_exec(request.policy))
    if (std::optional<Error> error = unlawful(trace, *plan, request.policy)) return *error;
  return plan;
}

/// The op whose step, or the next run after it, has the highest placed range.
std::string op_of_peak(const Trace& trace, const Plan& plan, std::uint32_t step) {
  for (; step < plan.steps.size(); ++step)
    if (plan.steps[step].kind == StepKind::run) return trace[plan.steps[step].op()].name;
  return "";
}

/// A plan and the arena that it needs.
struct Utmost {
  Plan plan;
  Floor needs;
};

Result<Utmost> made_for(const Trace& trace, const DeviceProfile& profile, PlanRequest request,
                        const Predict& predict, Bytes device) {
  request.budget.device = device;
  Result<Plan> plan = best_effort(trace, profile, request, predict);
  if (!plan) return plan.error();
  const Result<Placement> placement = place(trace, *plan, kEndless.device);
  if (!placement) return placement.error();
  Floor needs{round_up(placement->placed_peak, kAllocationUnit),
              op_of_peak(trace, *plan, placement->placed_peak_step)};
  return Utmost{std::move(*plan), std::move(needs)};
}

/// The plan of smallest arena that the policy makes for any of a few budgets. They do not depend on
/// the requested one, so that what fits under a budget fits under every larger one.
Result<Utmost> utmost(const Trace& trace, const DeviceProfile& profile, const PlanRequest& request,
                      const Predict& predict) {
  // A plan made for no budget at all is a policy's utmost effort, and most often the best.
  Result<Utmost> best = made_for(trace, profile, request, predict, 0_B);
  if (!best) return best;
  const Bytes first = best->needs.budget;
  for (const int percent : {400, 200, 150, 125, 110}) {
    Result<Utmost> other = made_for(trace, profile, request, predict, share(first, percent));
    if (!other) return other;
    if (percent == 400 && other->needs.budget == first) break;  // it does not look at the budget
    if (other->needs.budget < best->needs.budget) best = std::move(other);
  }
  // Asked for just what it needs, a policy may find a plan that needs less; asked for a unit less
  // than that, too.
  bool less_asked = false;
  for (int tries = 0; tries < 16; ++tries) {
    const Bytes asked = best->needs.budget - (less_asked ? kAllocationUnit : 0_B);
    Result<Utmost> less = made_for(trace, profile, request, predict, asked);
    if (!less) return less;
    if (less->needs.budget < best->needs.budget) {
      best = std::move(less);
      less_asked = false;
    } else if (less_asked) {
      break;
    } else {
      less_asked = true;
    }
  }
  return best;
}

/// `floor` is what the policy could do with another plan; without it, what this plan needs.
Error does_not_fit(const Error& why, const PlanRequest& request,
                   const std::optional<Floor>& floor) {
  Error error = why;
  error.code = ErrorCode::does_not_fit;
  if (!error.shortage) error.shortage = Shortage{};
  Shortage& shortage = *error.shortage;
  if (!request.seek_floor) shortage.smallest_budget = {};
  if (floor) {
    shortage.smallest_budget = floor->budget;
    if (shortage.op.empty()) shortage.op = floor->op;
  }
  error.message = fmt::format("policy {}: {}", request.policy, why.message);
  if (shortage.smallest_budget > 0_B)
    error.message += fmt::format(
        " (smallest feasible budget: {}, {} B{})", format_bytes(shortage.smallest_budget),
        shortage.smallest_budget.count, floor ? ", set by " + floor->op : std::string());
  return error;
}

}  // namespace

Result<Plan> make_plan(const Trace& trace, const DeviceProfile& profile, const PlanRequest& request,
                       const Predict& predict) {
  Result<Plan> plan = best_effort(trace, profile, request, predict);
  if (!plan) return plan;
  const Result<Placement> placement = place(trace, *plan, request.budget.device);
  if (!placement && placement.error().code != ErrorCode::does_not_fit) return placement.error();
  if (placement) {
    const std::optional<Violation> violation = check(trace, *plan);
    return violation ? Result<Plan>(to_error(*violation)) : plan;
  }
  // A command may answer anything to another budget, and takes its time: it is not asked again.
  if (is_exec(request.policy)) return does_not_fit(placement.error(), request, {});
  Result<Utmost> best = request.seek_floor ? utmost(trace, profile, request, predict)
                                           : made_for(trace, profile, request, predict, 0_B);
  if (!best && best.error().code == ErrorCode::cancelled) return best.error();
  if (!best) return does_not_fit(placement.error(), request, {});
  if (best->needs.budget > request.budget.device)
    return does_not_fit(placement.error(), request,
                        request.seek_floor ? std::optional(best->needs) : std::nullopt);
  best->plan.budget = request.budget;
  if (std::optional<Violation> violation = check(trace, best->plan)) return to_error(*violation);
  return std::move(best->plan);
}

Result<Floor> smallest_budget(const Trace& trace, const DeviceProfile& profile,
                              const PlanRequest& request, const Predict& predict) {
  Result<Utmost> best = utmost(trace, profile, request, predict);
  if (!best) return best.error();
  return best->needs;
}

}  // namespace superneurons
