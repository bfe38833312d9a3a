// The table of policies: one row each, and nothing registers itself.
#include <array>

#include "policies/passes.h"
#include "policies/policy.h"

namespace superneurons {

std::span<const PolicyEntry> policies() {
  static const std::array<PolicyEntry, 3> entries{
      PolicyEntry{"keep_all",
                  "everything stays on the device: the upper bound of memory",
                  {},
                  {},
                  keep_all},
      PolicyEntry{"recorded", "the traced program's own frees", {Fact::frees}, {}, recorded},
      PolicyEntry{"liveness",
                  "frees each tensor after the last step that needs it",
                  {Fact::accesses},
                  {},
                  liveness},
  };
  return entries;
}

std::span<const CompositionEntry> compositions() { return {}; }

}  // namespace superneurons
