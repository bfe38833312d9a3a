// What each kind of layer takes of a trace: time, memory, parameters (SuperNeurons, figure 8).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/trace.h"

namespace superneurons {

/// One kind of layer. Tensors belong to the layer whose op makes them, parameters to the first
/// that reads them.
struct LayerShare {
  std::string kind;         // "CONV", "FC", "ACT" ...; of an op that is of no layer: the op's kind
  std::int64_t layers = 0;  // that run forward
  std::int64_t ops = 0;
  Nanoseconds forward{}, backward{}, update{};  // of recorded choices
  Bytes activations{}, gradients{};  // made: the scope that the paper counts; whether they are
                                     // there at one time is not asked
  Bytes saved{};                     // masks, statistics
  Bytes parameters{};

  Nanoseconds time() const { return forward + backward; }  // as figure 8
  Bytes memory() const { return activations + gradients; }
};

/// By time, longest first. Ops that no layer kind of networks/operations.md explains (other traces)
/// stand under their own kind.
std::vector<LayerShare> layer_shares(const Trace& trace);

/// The name that the paper's figures give to the layer of an op: "CONV", "FC", "ACT", "POOL",
/// "LRN", "BN", "DROPOUT", "SOFTMAX", "JOIN", "FORK", "CONCAT", "UPDATE"; of other kinds the kind
/// itself.
std::string_view layer_kind(const Op& op);

}  // namespace superneurons
