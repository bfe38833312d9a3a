// Dropping values and making them again: the mechanics of recomputation, apart from the choice of
// what to drop.
#pragma once

#include <string>
#include <vector>

#include "policies/rewrite.h"

namespace superneurons {

/// A value to drop.
struct Drop {
  Idle idle;
  bool keep = true;   // once made again, for whatever, it stays until its last use (speed-centric);
                      // otherwise it goes again unless the op at hand needs it (memory-centric)
  std::string why{};  // added to the reason
};

/// The plan with the values of `drops` freed after their last forward use and made again when they
/// are next needed, by segments: whatever of the chain behind a value is absent is made again
/// first, back to what is on the device or the host (SuperNeurons, PPoPP 2018, section 3.4). What
/// the op at hand needs stays until its last use; other links of the chain go when the last op of
/// the chain that reads them is done, unless they were dropped and are to be kept. A drop that
/// cannot be made again (its maker or a link may not rerun, an older value would have to overwrite
/// a newer one, the chain is too long) is taken back. `may_rerun`: by op. Linear in the plan and in
/// the reruns.
Plan rebuild_later(const PolicyContext& context, const Plan& plan, std::vector<Drop> drops,
                   const std::vector<bool>& may_rerun);

}  // namespace superneurons
