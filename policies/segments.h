// Segments of recomputation (SuperNeurons, PPoPP 2018, section 3.4): values between two checkpoints
// that are made again one from the other, and what it takes to hold all of one at once.
//
// Worked example, a is kept, p q r are dropped; sizes 4 each, d_ are gradients:
//     forward   a -> p -> q -> r -> ...
//     backward  ... needs r, makes dr | r's layer needs q r dr, makes dq | q's: p q dq, makes dp
//     ...
// One segment {p q r} with source a. Made again once, most is live when r's layer runs: a p q r dr
// dq = 24. A layer by itself needs at most q r dr dq = 16, and with a, from which q is made, 20.
//
// What the rule does not see: values of other branches that wait beside a segment. A segment that
// is kept for it takes no more than l_peak, but both together may. On DenseNet-121, where every
// layer reads all before it, cost-aware so needs as much as speed-centric with `held` (11 % more
// than memory-centric at batch 32); with `distinct`, whose l_peak is less, it does not. On the
// networks of the paper's table 1 the claim that it needs no more than memory-centric holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policies/rewrite.h"

namespace superneurons {

/// How the largest layer, l_peak, is measured.
enum class LayerPeak : std::uint8_t {
  held,      // distinct operands, and what the absent ones are made from
  distinct,  // distinct operands
  aliased,   // a gradient updated in place counts twice, as in the released code
};

struct Segments {
  std::vector<std::uint32_t> of;  // by drop: its segment
  std::vector<Bytes> live;  // by segment: most bytes at any backward use if it is made again once
                            // and kept (sum of l^f + l_seg^b), its sources included
  Bytes layer_peak{};       // l_peak: the largest op of the plan
};

/// Bytes are of activations, their gradients, saved tensors and temporaries that are not carried,
/// and workspaces. Linear in the plan but for one sort of the uses.
Segments find_segments(const PolicyContext& context, const Plan& plan, std::span<const Idle> drops,
                       const std::vector<bool>& may_rerun, LayerPeak measure);

}  // namespace superneurons
