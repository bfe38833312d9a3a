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

std::optional<Error> refuse_lacking_facts(const Trace& trace, const PolicyEntry& entry) {
  for (const Fact fact : entry.needs) {
    if (trace.capability(fact) != Capability::none) continue;
    return Error{ErrorCode::bad_usage,
                 fmt::format("policy {} needs to know {}, which trace '{}' does not tell",
                             entry.name, kFactNames[static_cast<std::size_t>(fact)], trace.name)};
  }
  return {};
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

Result<Plan> run_passes(const Trace& trace, const DeviceProfile& profile,
                        const PlanRequest& request, const Predict& predict) {
  const Result<std::vector<Pass>> passes = parse_passes(request.policy);
  if (!passes) return passes.error();
  for (const Pass& pass : *passes)
    if (std::optional<Error> error = refuse_lacking_facts(trace, *pass.entry)) return *error;
  const Dataflow flow = analyze(trace);
  Plan plan = keep_all_plan(trace);
  plan.allocator = request.allocator;
  plan.budget = request.budget;
  for (const Pass& pass : *passes) {
    if (request.stop != nullptr && request.stop->load())
      return Error{ErrorCode::cancelled, "stopped while planning"};
    const PolicyContext context{trace,   flow,         profile,         request.budget,
                                predict, pass.options, request.explain, request.stop};
    Result<Plan> next = pass.entry->plan(context, plan);
    if (!next) return next;
    plan = std::move(*next);
    if (std::optional<Error> error = unlawful(trace, plan, pass.entry->name)) return *error;
  }
  return plan;
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
                                              : run_passes(trace, profile, request, predict);
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

/// What one planning tells of the floor: whether it fits and the arena its plan needs.
struct Probe {
  bool fits = false;
  Floor needs;
};

Result<Probe> probe(const Trace& trace, const DeviceProfile& profile, PlanRequest request,
                    const Predict& predict, Bytes device) {
  request.budget.device = device;
  request.explain = false;
  Result<Plan> plan = best_effort(trace, profile, request, predict);
  if (!plan) return plan.error();
  const Result<Placement> placement = place(trace, *plan, kEndless.device);
  if (!placement) return placement.error();
  return Probe{static_cast<bool>(place(trace, *plan, device)),
               {round_up(placement->placed_peak, kAllocationUnit),
                op_of_peak(trace, *plan, placement->placed_peak_step)}};
}

/// `floor` is what the policy could do with another plan; without it, what this plan needs.
Error does_not_fit(const Error& why, const PlanRequest& request, const Result<Floor>& floor) {
  Error error = why;
  error.code = ErrorCode::does_not_fit;
  if (!error.shortage) error.shortage = Shortage{};
  Shortage& shortage = *error.shortage;
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
    if (!violation) return plan;
    if (violation->law != Law::over_budget && violation->law != Law::over_host_budget)
      return to_error(*violation);
    return does_not_fit(to_error(*violation), request, Error{});
  }
  // A command may answer anything to another budget, and takes its time: it is not asked again.
  if (is_exec(request.policy)) return does_not_fit(placement.error(), request, Error{});
  return does_not_fit(placement.error(), request,
                      smallest_budget(trace, profile, request, predict));
}

Result<Floor> smallest_budget(const Trace& trace, const DeviceProfile& profile,
                              const PlanRequest& request, const Predict& predict) {
  // A plan made for no budget at all is a policy's utmost effort; most often it is the floor.
  Result<Probe> utmost = probe(trace, profile, request, predict, 0_B);
  if (!utmost) return utmost.error();
  Floor floor = utmost->needs;
  Bytes low{}, high = floor.budget;  // low is known not to fit
  Result<Probe> at = probe(trace, profile, request, predict, high);
  if (!at) return at.error();
  for (int doublings = 0; !at->fits; ++doublings) {
    if (doublings == 40)
      return Error{ErrorCode::does_not_fit, "no device budget is enough for " + request.policy};
    low = high;
    high = std::max(at->needs.budget, high * 2);
    at = probe(trace, profile, request, predict, high);
    if (!at) return at.error();
  }
  floor = at->needs;
  high = std::min(high, floor.budget);
  // One unit less decides most cases at once.
  Bytes middle = high - kAllocationUnit;
  while (middle > low && high - low > kAllocationUnit) {
    at = probe(trace, profile, request, predict, middle);
    if (!at) return at.error();
    if (at->fits) {
      floor = at->needs;
      high = std::min(middle, floor.budget);
    } else {
      low = middle;
    }
    middle = round_up({(low.count + high.count) / 2}, kAllocationUnit);
    if (middle >= high) break;
  }
  return Floor{high, floor.op};
}

}  // namespace superneurons
