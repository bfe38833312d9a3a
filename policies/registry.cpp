// The table of policies: one row each, and nothing registers itself.
#include "policies/passes.h"
#include "policies/policy.h"

namespace superneurons {

std::span<const PolicyEntry> policies() {
  static const PolicyEntry entries[] = {
      PolicyEntry{"keep_all",
                  "everything stays on the device: the upper bound of memory",
                  {},
                  {},
                  keep_all},
      PolicyEntry{"recorded", "the traced program's own frees", {Fact::frees}, {}, recorded},
      PolicyEntry{"liveness",
                  "frees each tensor after the last step that needs it",
                  {Fact::accesses},
                  {{"frees", "all",
                    "all; layers: what layers make, no gradients of parameters; gradients: of "
                    "activations only"}},
                  liveness},
      PolicyEntry{
          "offload",
          "outputs of convolution and FC layers wait on the host between forward and backward",
          {Fact::accesses, Fact::phases},
          {{"layers", "auto",
            "conv; conv_linear; checkpoints: and forks, joins, concatenations; all: any "
            "activation; auto: conv_linear if there are"},
           {"need", "budget", "budget: as few as it takes to fit; all"},
           {"lookahead", "auto",
            "prefetch ahead of the need by N ops or by Nlayers; auto: by the time of the copy"},
           {"free", "auto",
            "early: after the last forward use; late: when the copy is done; auto: late if that "
            "fits"},
           {"min", "1KiB", "smallest tensor that moves"}},
          offload},
      PolicyEntry{
          "offload_state",
          "momentum lives on the host and visits the device for its update",
          {Fact::accesses},
          {{"roles", "optimizer_state",
            "parameters: for every use of theirs; both; gradients: until their update; all"},
           {"need", "budget", "budget: as few as it takes to fit, the largest first; all"},
           {"lookahead", "auto",
            "prefetch ahead of the need by N ops or by Nlayers; auto: by the time of the copy, as "
            "far as there is room"},
           {"min", "1KiB", "smallest tensor that moves"}},
          offload_state},
      PolicyEntry{
          "tensor_cache",
          "the least recently used tensors leave when memory is short, and come back when needed",
          {Fact::accesses},
          {{"evict", "lru", "who leaves: lru; belady: whose next use is furthest"},
           {"prefetch", "ahead",
            "demand: copies when the need is there, as the paper; ahead: beside the ops, where "
            "there is room"},
           {"min", "64KiB", "smaller tensors leave only when no larger one can"}},
          tensor_cache},
      PolicyEntry{
          "recompute",
          "outputs of cheap layers are dropped in forward and made again in backward",
          {Fact::accesses, Fact::phases},
          {{"strategy", "cost_aware",
            "speed: segments are made again once; memory: for every use; cost_aware: once "
            "where they take no more than the largest layer, l_peak, or fit the budget"},
           {"need", "budget", "budget: as few as it takes to fit; all"},
           {"saved", "drop", "keep: masks and statistics stay; drop"},
           {"l_peak", "held",
            "held: operands of the largest op and what absent ones are made from; distinct: "
            "operands; aliased: and those in place twice"},
           {"min", "1KiB", "smallest tensor that is dropped"}},
          recompute},
  };
  return entries;
}

std::span<const CompositionEntry> compositions() {
  static constexpr CompositionEntry entries[] = {
      {"liveness_offload", "liveness+offload", "frees early and offloads what does not fit"},
      {"liveness_recompute", "liveness+recompute", "frees early and recomputes what does not fit"},
      {"offload_recompute", "liveness+offload+recompute",
       "frees early, offloads, and recomputes what still does not fit"},
      {"recompute_offload", "liveness+recompute+offload",
       "frees early, recomputes, and offloads what still does not fit"},
  };
  return entries;
}

}  // namespace superneurons
