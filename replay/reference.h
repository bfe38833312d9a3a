// The reference of a replay: recorded order, this plan's choices, everything kept; where the
// machine has no room for that, the plan of that order and those choices that keeps as much as
// fits.
#pragma once

#include <string_view>
#include <vector>

#include "replay/replay.h"

namespace superneurons {

/// Recorded order, everything kept, the choices of `plan`, in an arena of its own size.
Plan reference_plan(const Trace& trace, const Plan& plan);

/// References from the one that keeps most to the one that keeps least, each with an arena and a
/// host pool of its own size: reference_plan(); each tensor freed after its last use; what no op
/// needs at once waiting on the host as well. All end with the same values, as order and choices
/// are the same. Built from `plan`'s choices alone: no policy has a part in them.
std::vector<Plan> reference_ladder(const Trace& trace, const Plan& plan);

struct Reference {
  Plan plan;
  Run run;
};

/// Runs the first of the ladder that fits this machine and an arena of `most` bytes. Error
/// does_not_fit where none does; others as run_plan.
Result<Reference> run_reference(const Trace& trace, const Plan& plan, const ReplayOptions& options,
                                Bytes most = Bytes{std::int64_t{1} << 62});

}  // namespace superneurons
