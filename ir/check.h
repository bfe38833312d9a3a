// The checker: proves a plan lawful from the trace alone. Independent of every planner and of
// ir/dataflow.h, and dull on purpose.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ir/plan.h"
#include "ir/result.h"

namespace superneurons {

struct CheckedVersions;

enum class Law : std::uint8_t {
  well_formed,       // ids, choices, sizes of tables in range
  use_before_ready,  // reads a tensor that is not on the device and never was
  use_after_free,    // reads a tensor that was freed
  stale_version,     // device copy holds another version than the recorded step read
  stale_host_copy,   // prefetch of a host copy that a later write made stale
  prefetch_without_host_copy,
  prefetch_of_resident,
  offload_of_absent,
  free_of_absent,
  free_host_of_absent,
  lost_tensor,             // a value that is still needed exists nowhere and cannot be made again
  op_missing,              // an op of the trace never runs
  first_run_out_of_order,  // first runs must respect the data flow of the recorded step
  double_update,           // an op that must run once runs again
  forbidden_rerun,
  rerun_without_old_version,  // in-place or partial write rerun with another version than it needs
  two_choices,
  bad_discard,  // discards what it does not write, or what somebody still needs
  over_budget,
  over_host_budget,
  end_differs_from_begin,
  leftover_at_end,  // something not carried is still resident
};
inline constexpr std::array<std::string_view, 22> kLawNames = {"well_formed",
                                                               "use_before_ready",
                                                               "use_after_free",
                                                               "stale_version",
                                                               "stale_host_copy",
                                                               "prefetch_without_host_copy",
                                                               "prefetch_of_resident",
                                                               "offload_of_absent",
                                                               "free_of_absent",
                                                               "free_host_of_absent",
                                                               "lost_tensor",
                                                               "op_missing",
                                                               "first_run_out_of_order",
                                                               "double_update",
                                                               "forbidden_rerun",
                                                               "rerun_without_old_version",
                                                               "two_choices",
                                                               "bad_discard",
                                                               "over_budget",
                                                               "over_host_budget",
                                                               "end_differs_from_begin",
                                                               "leftover_at_end"};

struct Violation {
  Law law = Law::well_formed;
  std::uint32_t step = 0;  // plan step; steps.size() for the end
  std::string op;          // "" if none is involved
  std::string tensor;      // "" if none is involved
  std::string detail;      // one sentence
};

/// First law broken, or nothing. Bytes are summed unrounded (live bytes ≤ placed bytes): a home
/// counts for the whole step. Linear in plan and trace.
std::optional<Violation> check(const Trace& trace, const Plan& plan);

/// check() of many plans of one trace, which must outlive it: the versions are found once.
class PlanChecker {
 public:
  explicit PlanChecker(const Trace& trace);
  std::optional<Violation> check(const Plan& plan) const;

 private:
  const Trace* trace_;
  std::shared_ptr<const CheckedVersions> versions_;
};

/// As an Error (ErrorCode::unlawful) for those who return one.
Error to_error(const Violation& violation);

}  // namespace superneurons
