// The cells of the fidelity table: what is planned, on all cores, before anything is measured.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/lab.h"
#include "ir/plan.h"
#include "ir/trace.h"

namespace superneurons {

/// One network ready to be replayed.
struct Subject {
  Trace trace;
  std::string hash;
  Bytes liveness_peak{};
};

Result<Subject> subject_of(Trace trace, const DeviceProfile& profile);

/// One policy under one budget.
struct FidelityCell {
  std::string policy;
  std::string budget;  // percent of the liveness peak, "floor" or "max"
  Bytes bytes{};
  std::optional<Plan> plan;
  std::optional<Error> why;  // where there is no plan
  std::string plan_hash;     // of what runs: equal for equal plan steps, homes and allocators
  double estimate_s = 0;     // of the replay
};

/// Error bad_usage where one is neither a percentage nor "floor" nor "max".
Status check_budgets(const std::vector<std::string>& budgets);

/// One network under all policies and budgets (check_budgets), policy by policy, planned on all
/// cores. A policy's floor is sought once, and stands in the Error of each of its cells that has no
/// plan. `steps` of each replay, for its estimate.
std::vector<FidelityCell> plan_cells(const Subject& subject, const DeviceProfile& profile,
                                     const std::vector<std::string>& policies,
                                     const std::vector<std::string>& budgets, int steps);

}  // namespace superneurons
