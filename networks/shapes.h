// What a layer graph must obey before it can be lowered.
#pragma once

#include <optional>

#include "ir/result.h"
#include "networks/network.h"

namespace superneurons {

/// Shape of the layer's output from the shapes of its inputs (pooling and convolution round down);
/// `layer.shape.channels` gives the channels of a convolution and the features of a linear layer.
/// Nothing if the layer does not fit its inputs.
std::optional<Shape> output_shape(const Network& net, const Layer& layer);

/// The laws of a network: one data layer first, one loss last in the data flow, inputs before their
/// users, every other layer read by somebody, shapes that fit, names unique, every tensor of a
/// batch below 2^50 bytes. Returns the first law broken (bad_input).
std::optional<Error> find_fault(const Network& net, std::int64_t batch);

}  // namespace superneurons
