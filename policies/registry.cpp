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
                  keep_all,
                  true},
      PolicyEntry{"recorded", "the traced program's own frees", {Fact::frees}, {}, recorded, true},
      PolicyEntry{"liveness",
                  "frees each tensor after the last step that needs it",
                  {Fact::accesses},
                  {{"frees", "all",
                    "all; layers: what layers make, no gradients of parameters; gradients: of "
                    "activations only"}},
                  liveness,
                  true},
      PolicyEntry{
          "offload",
          "outputs of convolution and FC layers wait on the host between forward and backward",
          {Fact::accesses, Fact::phases},
          {{"layers", "auto",
            "conv; conv_linear: attention and recurrent ops as well; checkpoints: and forks, "
            "joins, "
            "concatenations; all: any activation; auto: conv_linear on our networks, else all"},
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
            "there is room; patient: the same, with more places tried"},
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
      PolicyEntry{
          "workspace",
          "each op takes its fastest choice whose workspace fits in what memory is left",
          {Fact::accesses},
          {{"grant", "room",
            "room: what is left beside everything else; alone: beside the op's operands and what "
            "never leaves; least: the smallest"},
           {"of", "100%", "share of the budget that grant=alone reckons with"},
           {"limit", "none", "most workspace of an op, e.g. 64MiB"},
           {"deterministic", "yes", "yes: only choices that give the same bits each time; no"},
           {"math", "recorded", "recorded: only choices in the recorded math mode; any"}},
          workspace},
      PolicyEntry{"balance",
                  "keeps, moves or makes again each value by what that is predicted to cost",
                  {Fact::accesses, Fact::phases},
                  {{"tries", "40", "plans to predict and choose from; fewer of long traces"}},
                  balance},
      PolicyEntry{"mix",
                  "makes again what gives most memory for its time, whatever its kind, and moves "
                  "what is still too much, as a cache that knows the future",
                  {Fact::accesses, Fact::phases},
                  {{"tries", "auto",
                    "plans to predict and choose from: a number; auto: 50, fewer of long traces"}},
                  mix,
                  false,
                  true},
  };
  return entries;
}

std::span<const CompositionEntry> compositions() {
  static constexpr CompositionEntry entries[] = {
      {"liveness_offload", "liveness+offload", "frees early and offloads what does not fit"},
      {"liveness_recompute", "liveness+recompute", "frees early and recomputes what does not fit"},
      {"paper_recompute", "liveness+recompute:need=all,saved=keep,min=1",
       "SuperNeurons' figure 10 (c): every cheap output is dropped, cost-aware, checkpoints stay"},
      {"offload_recompute", "liveness+offload+recompute",
       "frees early, offloads, and recomputes what still does not fit"},
      {"recompute_offload", "liveness+recompute+offload",
       "frees early, recomputes, and offloads what still does not fit"},
      {"superneurons",
       "liveness+workspace:grant=alone+recompute+tensor_cache+workspace"
       "/liveness+workspace:grant=alone,of=50%+recompute+tensor_cache+workspace"
       "/superneurons_no_cache/superneurons_no_recompute/superneurons_no_offload"
       "/superneurons_no_workspace",
       "all of SuperNeurons (PPoPP 2018): frees early, recomputes, moves through the cache what "
       "still does not fit, and grants the workspaces that there is room for"},
      {"superneurons_no_cache",
       "liveness+workspace:grant=alone+recompute+offload+workspace"
       "/liveness+workspace:grant=alone,of=50%+recompute+offload+workspace",
       "the same with transfers of the layers that the paper offloads"},
      {"superneurons_no_recompute",
       "liveness+workspace:grant=alone+tensor_cache+workspace"
       "/liveness+workspace:grant=alone,of=50%+tensor_cache+workspace",
       "the same without recomputation"},
      {"superneurons_no_offload",
       "liveness+workspace:grant=alone+recompute+workspace"
       "/liveness+workspace:grant=alone,of=50%+recompute+workspace",
       "the same without transfers"},
      {"superneurons_no_workspace", "liveness+recompute+tensor_cache/liveness+recompute+offload",
       "the same with the recorded workspaces"},
      {"superneurons_belady",
       "liveness+workspace:grant=alone+recompute+tensor_cache:evict=belady+workspace"
       "/liveness+workspace:grant=alone,of=70%+recompute+tensor_cache:evict=belady+workspace"
       "/liveness+workspace:grant=alone,of=50%+recompute+tensor_cache:evict=belady+workspace"
       "/liveness+workspace:grant=alone,of=20%+recompute+tensor_cache:evict=belady+workspace"
       "/liveness+workspace:grant=alone+recompute:strategy=speed+tensor_cache:evict=belady+"
       "workspace"
       "/liveness+workspace:grant=alone,of=70%+recompute:strategy=speed"
       "+tensor_cache:evict=belady+workspace"
       "/liveness+workspace:grant=alone,of=50%+recompute:strategy=speed"
       "+tensor_cache:evict=belady+workspace"
       "/liveness+workspace:grant=alone,of=20%+recompute:strategy=speed"
       "+tensor_cache:evict=belady+workspace",
       "the same with a cache that knows the future: whose next use is furthest leaves"},
      {"superneurons_best",
       "superneurons/liveness+balance/superneurons_belady/liveness+mix"
       "/recompute_offload/offload_recompute/liveness_offload/liveness_recompute",
       "ours: decides by predicted cost instead of by layer, or with a cache that knows the "
       "future, where that is faster; of up to 2,000 ops never slower than any of these"},
  };
  return entries;
}

}  // namespace superneurons
