// Outcome: one row of every result: what simulate, compare and replay print and write as JSON.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ir/device_profile.h"
#include "ir/plan.h"
#include "ir/prediction.h"
#include "simulator/cache_stats.h"
#include "simulator/model_backend.h"
#include "simulator/timeline.h"
#include "simulator/workspaces.h"

namespace superneurons {

struct Outcome {
  std::string policy;  // with options
  std::string trace;   // name
  std::string trace_hash;
  std::string scaled_from;  // device that the ops were measured on, their times scaled; "": none
  std::string allocator;
  Bytes budget_bytes{};
  Bytes live_peak_bytes{};
  Bytes placed_peak_bytes{};
  Bytes used_peak_bytes{};  // end of the highest range handed out (Placement::used_peak)
  // Where the allocator caches: what a PyTorch program would measure (memory/reserved.h).
  std::optional<Bytes> allocated_peak_bytes, reserved_peak_bytes;
  std::array<Bytes, kRoleNames.size()> scope_peak_bytes{};  // peak of each role on its own
  Bytes host_bytes{};                                       // pinned pool
  Nanoseconds step_ns{};                                    // predicted
  Nanoseconds bound_ns{};  // proven lower bound of time under the budget
  Nanoseconds compute_ns{};
  Bytes offload_bytes{};
  Bytes prefetch_bytes{};
  CacheStats cache;
  std::int64_t recompute_runs = 0;
  Nanoseconds recompute_ns{};
  std::array<Nanoseconds, kCauseNames.size()> stall_ns{};
  Nanoseconds
      slower_choices_ns{};  // of compute_ns: beyond the fastest choices (WorkspaceRow::lost)
  std::int64_t slower_choices = 0;       // ops that do not take their fastest
  std::vector<WorkspaceRow> workspaces;  // on request only: workspaces_of()
  // replay only
  std::string time_refused;  // why step_ns is no prediction of measured_step_ns; "": it is one
  std::optional<Nanoseconds> measured_step_ns;
  std::optional<Bytes> measured_peak_bytes;  // predicted: used_peak_bytes
  std::optional<Bytes> outside_bytes;  // device memory taken outside the arena (context, libraries)
  std::optional<bool> equal;
  bool guards = false;  // measured_peak_bytes holds guard bytes around every range as well
  std::vector<float> losses, reference_losses;  // per training step; empty: there are none
  std::string data;                             // name of the data set trained on, "" for none
  std::int64_t test_images = 0, test_correct = 0;
};

/// What evaluate() went through, for whoever wants more of it.
struct Evaluation {
  Outcome outcome;
  Program program;
  Timeline timeline;  // with spans if options.keep_spans
};
Result<Evaluation> evaluate_in_full(const Trace& trace, const Plan& plan,
                                    const DeviceProfile& profile, const ModelOptions& options = {});

/// What policies ask, of this trace and profile (which must outlive it): only what a Prediction
/// says, without bound and residency. An Error cancelled once `stop` is set.
Predict predictor(const Trace& trace, const DeviceProfile& profile,
                  const std::atomic<bool>* stop = nullptr);

/// Predicts the plan and fills all but the replay fields. options.clock: replay time or program
/// time.
Result<Outcome> evaluate(const Trace& trace, const Plan& plan, const DeviceProfile& profile,
                         const ModelOptions& options = {});

/// No plan under the budget is faster: the sum over ops of their fastest choice's device time among
/// those that fit (each op runs at least once on one compute stream), launch gaps included; or, if
/// longer, what the values that the budget has no room for cost in prefetches or reruns
/// (simulator/bound.cpp has the proof). A device budget of 0 means no limit.
Nanoseconds time_bound(const Trace& trace, const DeviceProfile& profile, Budget budget,
                       Clock clock = Clock::replay);

}  // namespace superneurons
