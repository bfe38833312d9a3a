// Attributes and arithmetic of the ops of a layer.
#pragma once

#include <map>
#include <string>

#include "networks/network.h"

namespace superneurons {

/// As networks/operations.md; the same for all forward and backward ops of the layer.
std::map<std::string, double> layer_attributes(const Network& net, const Layer& layer,
                                               std::int64_t batch);

/// Arithmetic operations of the forward op (a multiply-add is two).
double layer_flops(const Network& net, const Layer& layer, std::int64_t batch);

/// Arithmetic of one backward op relative to the forward op.
double backward_factor(LayerKind kind);

}  // namespace superneurons
