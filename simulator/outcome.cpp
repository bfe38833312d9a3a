#include "simulator/outcome.h"

#include <algorithm>
#include <utility>

#include "ir/check.h"
#include "memory/placement.h"
#include "memory/reserved.h"
#include "simulator/model_backend.h"

namespace superneurons {
namespace {

void add_memory(const Trace& trace, const Plan& plan, const Placement& placement,
                Outcome& outcome) {
  outcome.live_peak_bytes = placement.live_peak;
  outcome.placed_peak_bytes = placement.placed_peak;
  outcome.used_peak_bytes = placement.used_peak;
  outcome.host_bytes = placement.host_peak;
  if (const std::optional<CachePeaks> peaks = cache_peaks(trace, plan)) {
    outcome.allocated_peak_bytes = peaks->allocated;
    outcome.reserved_peak_bytes = peaks->reserved;
  }
  for (const Residency& row : residency(trace, plan))
    for (std::size_t role = 0; role < row.by_role.size(); ++role)
      outcome.scope_peak_bytes[role] = std::max(outcome.scope_peak_bytes[role], row.by_role[role]);
}

void add_traffic(const Trace& trace, const Program& program, Outcome& outcome) {
  for (const Command& command : program.commands) {
    switch (command.kind) {
      case CommandKind::copy_out:
        outcome.offload_bytes =
            saturating_add(outcome.offload_bytes, trace.tensors[command.subject].bytes);
        break;
      case CommandKind::copy_in:
        outcome.prefetch_bytes =
            saturating_add(outcome.prefetch_bytes, trace.tensors[command.subject].bytes);
        break;
      case CommandKind::run:
        if (!command.rerun) break;
        ++outcome.recompute_runs;
        outcome.recompute_ns =
            later(outcome.recompute_ns, trace.ops[command.subject].choices[command.choice].ns);
        break;
      case CommandKind::poison:
        break;
    }
  }
}

void add_choices(const Trace& trace, const Plan& plan, Outcome& outcome) {
  const std::vector<WorkspaceRow> rows = workspaces_of(trace, plan);
  outcome.slower_choices_ns = total_lost(rows);
  outcome.slower_choices = std::count_if(rows.begin(), rows.end(),
                                         [](const WorkspaceRow& row) { return row.lost > 0_ns; });
}

/// check → place → program → model.
struct Simulated {
  Placement placement;
  Program program;
  Timeline timeline;
};

Result<Simulated> simulate_plan(const Trace& trace, const Plan& plan, const DeviceProfile& profile,
                                const ModelOptions& options) {
  const auto stopped = [&] { return options.stop != nullptr && *options.stop; };
  const Error cancelled{.code = ErrorCode::cancelled, .message = "cancelled"};
  if (stopped()) return cancelled;
  if (const auto violation = check(trace, plan)) return to_error(*violation);
  if (stopped()) return cancelled;
  Result<Placement> placement = place(trace, plan, plan.budget.device);
  if (!placement) return std::move(placement.error());
  if (stopped()) return cancelled;
  Program program = build_program(trace, plan, *placement);
  Result<Timeline> timeline = simulate_program(trace, program, profile, options);
  if (!timeline) return std::move(timeline.error());
  return Simulated{*std::move(placement), std::move(program), *std::move(timeline)};
}

}  // namespace

Result<Evaluation> evaluate_in_full(const Trace& trace, const Plan& plan,
                                    const DeviceProfile& profile, const ModelOptions& options) {
  Result<Simulated> simulated = simulate_plan(trace, plan, profile, options);
  if (!simulated) return std::move(simulated.error());
  Outcome outcome;
  outcome.policy = plan.policy;
  outcome.trace = trace.name;
  outcome.trace_hash = plan.trace_hash;
  outcome.allocator = plan.allocator;
  outcome.budget_bytes = plan.budget.device;
  add_memory(trace, plan, simulated->placement, outcome);
  add_traffic(trace, simulated->program, outcome);
  outcome.cache = cache_stats(trace, plan);
  add_choices(trace, plan, outcome);
  outcome.step_ns = simulated->timeline.step_ns;
  outcome.bound_ns = time_bound(trace, profile, plan.budget, options.clock);
  outcome.compute_ns = simulated->timeline.compute_ns;
  outcome.stall_ns = simulated->timeline.stall_ns;
  return Evaluation{std::move(outcome), std::move(simulated->program),
                    std::move(simulated->timeline)};
}

Result<Outcome> evaluate(const Trace& trace, const Plan& plan, const DeviceProfile& profile,
                         const ModelOptions& options) {
  Result<Evaluation> full = evaluate_in_full(trace, plan, profile, options);
  if (!full) return std::move(full.error());
  return std::move(full->outcome);
}

Predict predictor(const Trace& trace, const DeviceProfile& profile, const std::atomic<bool>* stop) {
  return [&trace, &profile, stop](const Plan& plan) -> Result<Prediction> {
    const Result<Simulated> simulated = simulate_plan(trace, plan, profile, {.stop = stop});
    if (!simulated) return simulated.error();
    return Prediction{simulated->timeline.step_ns, simulated->placement.live_peak,
                      simulated->placement.placed_peak};
  };
}

}  // namespace superneurons
