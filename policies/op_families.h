// Families of ops: what the paper's rules mean by "convolution" or "pooling", for the kinds of our
// own networks and for the ATen names in traces of PyTorch. The one place where policies interpret
// Op::kind.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/trace.h"

namespace superneurons {

/// Of forward ops; backward ones, updates and unknown kinds are `other`, for which policies go by
/// time and size.
enum class OpFamily : std::uint8_t {
  other,
  convolution,
  linear,     // matrix products
  attention,  // fused
  recurrent,  // a whole LSTM or GRU
  copy,       // forks
  sum,        // joins
  accumulate,
  concat,
  activation,
  pooling,
  normalization,
  dropout,
  loss,  // softmax with its loss
};

/// Exact kinds of ours; of "aten::NAME" without overload (".out") and in-place mark ("add_").
OpFamily family_of(std::string_view kind);
/// By op.
std::vector<OpFamily> families_of(const Trace& trace);

/// A kind of another program than our networks: "aten::add".
inline bool is_foreign(std::string_view kind) { return kind.find("::") != std::string_view::npos; }

/// Computes rather than moves: what the paper offloads instead of making it again.
inline bool is_heavy(OpFamily family) {
  return family == OpFamily::convolution || family == OpFamily::linear ||
         family == OpFamily::attention || family == OpFamily::recurrent;
}

/// POOL, ACT, LRN, BN and dropout: what the paper makes again (PPoPP 2018, section 3.4).
inline bool is_cheap(OpFamily family) {
  return family == OpFamily::activation || family == OpFamily::pooling ||
         family == OpFamily::normalization || family == OpFamily::dropout;
}

}  // namespace superneurons
