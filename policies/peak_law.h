// The peak law of SuperNeurons (PPoPP 2018), as an inequality that can be computed from the trace
// alone. The paper claims that with liveness, offload and recomputation
//
//     peak_m = max_i l_i                                                    (section 3.4)
//
// where l_i are the bytes of layer i's own tensors. What a layer is made from, and what comes early
// so that nobody waits for it, must be somewhere too. What holds is
//
//     scope peak <= step + max_k (prefetched_k + waiting_k),     step = max_k step_k >= max_i l_i
//
//     layer_k       operands of op k: the paper's l_k, each tensor once
//     step_k        at op k: its operands and the checkpoints *held* from which absent ones are
//     made
//                   again; or, before it runs, what it reads, the checkpoints held and the operands
//                   of an op that is run again for it, whichever is most
//     prefetched_k  checkpoints that a later op needs within the look-ahead, in layer steps
//     waiting_k     values between two uses in one phase: what one branch made before another one
//                   runs, of which neither offload nor recomputation rids the device
//
// for liveness, then recomputation of all outputs of cheap layers, memory-centric or cost-aware (a
// segment that is kept takes no more than the largest step, by its own rule), then offload of all
// else that waits into backward, freed early. The policy `superneurons` does less where memory is
// not short, and so needs more there; at its floor it does no worse (tests/policies).
//
// Worked example, AlexNet at batch 200, look-ahead 0, in MiB: max l_i = 664.7 at LRN1's backward
// (RELU1, LRN1 and the gradient in place), which holds CONV1 to make RELU1 from: step = 886.2, and
// that is the peak. The paper counts the gradient in place twice and so arrives at the same sum.
#pragma once

#include <cstdint>

#include "ir/dataflow.h"
#include "ir/trace.h"

namespace superneurons {

struct PeakLaw {
  Bytes layer{};  // max_i l_i
  OpId layer_op;  // who sets it
  Bytes step{};   // max_k step_k
  OpId step_op;
  Bytes prefetched{};  // of the op at which prefetched + waiting are most
  Bytes waiting{};
  OpId apart_op;
  Bytes bound() const { return step + prefetched + waiting; }
};

/// For the paper's lowering of a network (forks copy, so that every output has one reader). Bytes
/// of activations and their gradients, in `layer` and `step` also saved tensors and temporaries,
/// which the rule of cost-aware recomputation counts. `lookahead` in layer steps. Linear in the
/// trace and in the ops that memory-centric recomputation runs again.
PeakLaw peak_law(const Trace& trace, const Dataflow& flow, std::uint32_t lookahead);

}  // namespace superneurons
