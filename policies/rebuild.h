// Dropping values and making them again: the mechanics of recomputation, apart from the choice of
// what to drop.
#pragma once

#include <span>
#include <vector>

#include "policies/rewrite.h"

namespace superneurons {

/// The plan with the values of `drops` freed after their last forward use and made again when they
/// are next needed, by segments: whatever of the chain behind a value is absent is made again
/// first, back to what is on the device or the host. What was dropped stays from then until its
/// last use (speed-centric, SuperNeurons section 3.4); other links of the chain go when the chain
/// is done. A drop that cannot be made again (its maker or a link may not rerun, an older value
/// would have to overwrite a newer one, the chain is too long) is taken back. `may_rerun`: by op.
Plan rebuild_later(const PolicyContext& context, const Plan& plan, std::span<const Idle> drops,
                   const std::vector<bool>& may_rerun);

}  // namespace superneurons
