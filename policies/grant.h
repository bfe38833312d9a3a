// Granting workspaces: the mechanics of the pass `workspace`, for other passes to reckon with.
#pragma once

#include "ir/choices.h"
#include "policies/policy.h"

namespace superneurons {

/// The plan in which each op takes the fastest choice whose workspace fits wherever the op runs,
/// beside everything else that the plan has in the context's device budget then. If not even the
/// smallest workspaces fit there, no grant makes the arena larger than those need.
Plan grant_what_is_left(const PolicyContext& context, const Plan& plan, const ChoiceRule& rule);

/// The plan in which each op takes the fastest choice that would fit into `room` beside nothing but
/// its operands and what never leaves the device.
Plan grant_alone(const PolicyContext& context, const Plan& plan, const ChoiceRule& rule,
                 Bytes room);

/// The plan in which each op takes the choice of least workspace.
Plan grant_least(const PolicyContext& context, const Plan& plan, const ChoiceRule& rule);

}  // namespace superneurons
