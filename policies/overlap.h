// Copies beside the ops: moves the copies of a finished plan to where they cost least time.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/policy.h"

namespace superneurons {

/// The plan with its copies ahead of the need, as far as both budgets have room for it:
///   offload   right after the value was written or brought, rather than when its room is wanted;
///   free      behind an offload: when the copy is predicted to be done, so that who takes the
///             range does not wait for it;
///   prefetch  early enough that the predicted copies, one after another, are done when needed (if
///             no op has a duration: three layer steps ahead, as the paper).
/// Runs stay as they are, and copies keep their order in each direction. A plan that does not fit
/// the budgets of the context comes back as it is; one that fits still fits, the allocator's way:
/// copies around a place without room go back to where they were until the plan can be placed.
///
///     before   run a; run b; offload x; free x; run c; run d; prefetch x; run e(x)
///     after    run a; offload x; run b; run c; free x; prefetch x; run d; run e(x)
struct OverlapOptions {
  bool prefetches = true;  // false: they stay where they are
  int patience = 0;  // > 0: where there is no room one copy gives way, the one that is needed last,
                     // to just behind that place; so often, then as without patience
};
Plan overlap(const PolicyContext& context, const Plan& plan, OverlapOptions options = {});

}  // namespace superneurons
