// From a request to a plan: passes, the checker after each, placement after the last, and the floor
// where it does not fit.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ir/check.h"
#include "ir/files.h"
#include "memory/placement.h"
#include "policies/alternatives.h"
#include "policies/exec_policy.h"
#include "policies/policy.h"
#include "policies/request.h"

namespace superneurons {
namespace {

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

/// `percent` of it, as far as numbers go.
Bytes share(Bytes bytes, std::int64_t percent) {
  const auto product = static_cast<__int128>(bytes.count) * percent / 100;
  return {static_cast<std::int64_t>(std::min<__int128>(product, kEndless.count))};
}

/// The request's alternatives, or why there are none.
Result<std::vector<std::vector<Pass>>> understood(const Trace& trace, const PlanRequest& request) {
  if (Status known = check_allocator(request.allocator); !known) return known.error();
  if (is_exec(request.policy)) return std::vector<std::vector<Pass>>{};
  Result<std::vector<std::vector<Pass>>> alternatives = parse_policy(request.policy);
  if (!alternatives) return alternatives;
  if (std::optional<Error> error = refuse_other_lowering(trace, request.policy)) return *error;
  for (const std::vector<Pass>& passes : *alternatives)
    for (const Pass& pass : passes)
      if (std::optional<Error> error = refuse_lacking_facts(trace, *pass.entry)) return *error;
  return alternatives;
}

/// Makes the plans of a request.
struct Maker {
  Maker(const Trace& of, const DeviceProfile& with, const PlanRequest& asked,
        const Predict& predict, const std::vector<std::vector<Pass>>& alternatives)
      : trace(of),
        profile(with),
        request(asked),
        commanded(is_exec(asked.policy)),
        best(of, with, request, predict, alternatives) {}

  const Trace& trace;
  const DeviceProfile& profile;
  const PlanRequest& request;
  bool commanded;  // by a program
  Alternatives best;

  /// The policy's best plan, checked but not yet held against the budget.
  Result<Plan> effort(Bytes device) {
    PlanRequest asked = request;
    asked.budget.device = device;
    Result<Plan> plan = commanded ? exec_policy(trace, profile, asked) : best.best(device);
    if (!plan) return plan;
    plan->policy = request.policy;
    plan->allocator = request.allocator;
    plan->budget = asked.budget;
    if (commanded)
      if (std::optional<Error> error = unlawful(best.checker(), *plan, request.policy))
        return *error;
    return plan;
  }
};

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

Result<Utmost> made_for(Maker& maker, Bytes device) {
  Result<Plan> plan = maker.effort(device);
  if (!plan) return plan.error();
  const Result<Placement> placement = place(maker.trace, *plan, kEndless);
  if (!placement) return placement.error();
  Floor needs{round_up(placement->placed_peak, kAllocationUnit),
              op_of_peak(maker.trace, *plan, placement->placed_peak_step)};
  return Utmost{std::move(*plan), std::move(needs)};
}

/// What this plan needs, and the op that sets it; nothing where `why` does not tell.
std::optional<Floor> own_floor(const Trace& trace, const Plan& plan, const Error& why) {
  if (!why.shortage || why.shortage->smallest_budget <= 0_B) return {};
  const Result<Placement> placement = place(trace, plan, kEndless);
  if (!placement) return {};
  return Floor{why.shortage->smallest_budget, op_of_peak(trace, plan, placement->placed_peak_step)};
}

/// Plans from a floor to a lower one; of those seen, none took more than 20.
inline constexpr int kMostDescents = 64;

/// The plan of smallest arena that the policy makes for any of a few budgets. They do not depend on
/// the requested one, so that what fits under a budget fits under every larger one. The first that
/// needs no more than `enough` will do.
Result<Utmost> utmost(Maker& maker, Bytes enough) {
  // A plan made for no budget at all is a policy's utmost effort, and most often the best.
  Result<Utmost> best = made_for(maker, 0_B);
  if (!best || best->needs.budget <= enough) return best;
  const Bytes first = best->needs.budget;
  for (const int percent : {400, 200, 150, 125, 110}) {
    Result<Utmost> other = made_for(maker, share(first, percent));
    if (!other) return other;
    if (percent == 400 && other->needs.budget == first) break;  // it does not look at the budget
    if (other->needs.budget < best->needs.budget) best = std::move(other);
    if (best->needs.budget <= enough) return best;
  }
  // Asked for just what it needs, a policy may find a plan that needs less; asked for a unit less
  // than that, too: in the end a unit less is refused.
  bool less_asked = false;
  for (int tries = 0; tries < kMostDescents; ++tries) {
    const Bytes asked = best->needs.budget - (less_asked ? kAllocationUnit : 0_B);
    Result<Utmost> less = made_for(maker, asked);
    if (!less) return less;
    if (less->needs.budget < best->needs.budget) {
      best = std::move(less);
      less_asked = false;
      if (best->needs.budget <= enough) return best;
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
  const Result<std::vector<std::vector<Pass>>> alternatives = understood(trace, request);
  if (!alternatives) return alternatives.error();
  Maker maker(trace, profile, request, predict, *alternatives);
  Result<Plan> plan = maker.effort(request.budget.device);
  if (!plan) return plan;
  const Result<Placement> placement = place(trace, *plan, request.budget.device);
  if (!placement && placement.error().code != ErrorCode::does_not_fit) return placement.error();
  if (placement) {
    const std::optional<Violation> violation = maker.best.checker().check(*plan);
    return violation ? Result<Plan>(to_error(*violation)) : plan;
  }
  // A command may answer anything to another budget, and takes its time: it is not asked again.
  if (maker.commanded)
    return does_not_fit(
        placement.error(), request,
        request.seek_floor ? own_floor(trace, *plan, placement.error()) : std::nullopt);
  Result<Utmost> best =
      request.seek_floor ? utmost(maker, request.budget.device) : made_for(maker, 0_B);
  if (!best && best.error().code == ErrorCode::cancelled) return best.error();
  if (!best) return does_not_fit(placement.error(), request, {});
  if (best->needs.budget > request.budget.device)
    return does_not_fit(placement.error(), request,
                        request.seek_floor ? std::optional(best->needs) : std::nullopt);
  best->plan.budget = request.budget;
  if (std::optional<Violation> violation = maker.best.checker().check(best->plan))
    return to_error(*violation);
  return std::move(best->plan);
}

Result<Floor> smallest_budget(const Trace& trace, const DeviceProfile& profile,
                              const PlanRequest& request, const Predict& predict) {
  const Result<std::vector<std::vector<Pass>>> alternatives = understood(trace, request);
  if (!alternatives) return alternatives.error();
  Maker maker(trace, profile, request, predict, *alternatives);
  Result<Utmost> best = utmost(maker, 0_B);
  if (!best) return best.error();
  return best->needs;
}

}  // namespace superneurons
