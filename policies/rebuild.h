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

/// What the plans that drop values of one plan have in common. Everything it is made from must
/// outlive it.
class Rebuild {
 public:
  /// `may_rerun`: by op.
  Rebuild(const PolicyContext& context, const Plan& plan, const std::vector<bool>& may_rerun);

  /// The plan with the values of `drops` freed after their last forward use and made again when
  /// they are next needed, by segments: whatever of the chain behind a value is absent is made
  /// again first, back to what is on the device or the host (SuperNeurons, PPoPP 2018, section
  /// 3.4). What the op at hand needs stays until its last use; other links of the chain go when the
  /// last op of the chain that reads them is done, unless they were dropped and are to be kept. A
  /// drop that cannot be made again (its maker or a link may not rerun, an older value would have
  /// to overwrite a newer one, the chain is too long) is taken back. Linear in the plan and in the
  /// reruns.
  Plan without(std::vector<Drop> drops) const;

 private:
  friend class Rebuilder;
  static constexpr std::uint32_t kNoLead = 0xffffffff;

  void find_last_touches();
  void find_leads();

  const PolicyContext& context_;
  const Plan& plan_;
  const std::vector<bool>& may_rerun_;
  std::vector<bool> rerun_;                // by step
  std::vector<Nanoseconds> clock_;         // by step
  std::vector<std::uint32_t> runs_;        // by step: runs before it
  std::vector<std::uint32_t> lead_;        // by tensor: runs that its last prefetch is ahead
  std::vector<std::uint32_t> last_touch_;  // by tensor: last step with its device copy
};

}  // namespace superneurons
