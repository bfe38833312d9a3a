#include "networks/shapes.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace superneurons {
namespace {

// A dimension fits the `int` of cuDNN and cuBLAS; a tensor stays far below overflow of sums.
constexpr std::int64_t kLargestDimension = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kLargestTensor = std::int64_t{1} << 50;  // bytes

bool dimension(std::int64_t value) { return value >= 1 && value <= kLargestDimension; }

bool valid(const Shape& shape) {
  return dimension(shape.channels) && dimension(shape.height) && dimension(shape.width);
}

/// Bytes of that many floats; nothing if above the limit. All factors are dimensions.
std::optional<std::int64_t> float_bytes(std::initializer_list<std::int64_t> factors) {
  std::int64_t bytes = 4;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(bytes, factor, &bytes) || bytes > kLargestTensor)
      return std::nullopt;
  return bytes;
}

std::int64_t slide(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t pad) {
  const std::int64_t room = size + 2 * pad - kernel;
  return room < 0 ? 0 : room / stride + 1;
}

bool valid_pad(std::int64_t pad) { return pad >= 0 && pad <= kLargestDimension; }

std::optional<Shape> window_shape(const Shape& in, const Layer& layer, std::int64_t channels) {
  const Extent& kernel = layer.kernel;
  const Extent& pad = layer.pad;
  if (!dimension(kernel.height) || !dimension(kernel.width) || !dimension(layer.stride))
    return std::nullopt;
  if (!valid_pad(pad.height) || !valid_pad(pad.width)) return std::nullopt;
  if (layer.kind != LayerKind::convolution) {
    if (!kernel.square() || !pad.square()) return std::nullopt;
    if (2 * pad.height > kernel.height) return std::nullopt;  // a window of padding alone
  }
  return Shape{channels, slide(in.height, kernel.height, layer.stride, pad.height),
               slide(in.width, kernel.width, layer.stride, pad.width)};
}

std::optional<Shape> concat_shape(const Network& net, const Layer& layer) {
  Shape shape = net[layer.inputs[0]].shape;
  shape.channels = 0;
  for (const LayerId id : layer.inputs) {
    const Shape& in = net[id].shape;
    if (in.height != shape.height || in.width != shape.width) return std::nullopt;
    shape.channels += in.channels;  // at most 2^32 inputs of 2^31
  }
  return shape;
}

std::optional<Shape> add_shape(const Network& net, const Layer& layer) {
  const Shape& first = net[layer.inputs[0]].shape;
  for (const LayerId id : layer.inputs) {
    const Shape& in = net[id].shape;
    if (in.channels != first.channels || in.height != first.height || in.width != first.width)
      return std::nullopt;
  }
  return first;
}

std::optional<Shape> unchecked_shape(const Network& net, const Layer& layer) {
  const Shape& in = net[layer.inputs[0]].shape;
  switch (layer.kind) {
    case LayerKind::convolution:
      return window_shape(in, layer, layer.shape.channels);
    case LayerKind::max_pool:
    case LayerKind::average_pool:
      return window_shape(in, layer, in.channels);
    case LayerKind::linear:
      if (!float_bytes({in.channels, in.height, in.width})) return std::nullopt;
      if (!dimension(in.count())) return std::nullopt;
      return Shape{layer.shape.channels, 1, 1};
    case LayerKind::softmax_cross_entropy:
      if (in.channels != net.classes || in.height != 1 || in.width != 1) return std::nullopt;
      return in;
    case LayerKind::dropout:
      if (!(layer.rate >= 0 && layer.rate < 1)) return std::nullopt;
      return in;
    case LayerKind::add:
      return add_shape(net, layer);
    case LayerKind::concat:
      return concat_shape(net, layer);
    case LayerKind::relu:
    case LayerKind::lrn:
    case LayerKind::batch_norm:
      return in;
    case LayerKind::data:
      break;
  }
  return std::nullopt;
}

bool takes_many(LayerKind kind) { return kind == LayerKind::add || kind == LayerKind::concat; }

/// Whether the layer's output and weight are small enough for a batch.
bool small_enough(const Network& net, const Layer& layer, std::int64_t batch) {
  const Shape& out = layer.shape;
  if (!float_bytes({batch, out.channels, out.height, out.width})) return false;
  if (layer.inputs.empty()) return true;
  const Shape& in = net[layer.inputs[0]].shape;
  if (layer.kind == LayerKind::convolution)
    return float_bytes({out.channels, in.channels, layer.kernel.height, layer.kernel.width})
        .has_value();
  if (layer.kind == LayerKind::linear)
    return float_bytes({out.channels, in.channels, in.height, in.width}).has_value();
  return true;
}

Error fault(std::string message) { return {.message = std::move(message)}; }

std::string text(const Shape& shape) {
  return fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width);
}

std::optional<Error> layer_fault(const Network& net, std::uint32_t index, std::int64_t batch) {
  const Layer& layer = net.layers[index];
  if (layer.name.empty()) return fault(fmt::format("layer {} has no name", index));
  if ((index == 0) != (layer.kind == LayerKind::data))
    return fault("layer " + layer.name + ": the first layer, and no other, is data");
  if (index == 0) {
    if (!layer.inputs.empty()) return fault("the data layer has inputs");
    if (!valid(layer.shape)) return fault("the image is " + text(layer.shape));
  } else {
    for (const LayerId input : layer.inputs)
      if (input.index >= index)
        return fault("layer " + layer.name + " comes before its input (inputs come first)");
    const std::optional<Shape> shape = output_shape(net, layer);
    if (!shape)
      return fault(
          fmt::format("layer {} does not fit its input{}", layer.name,
                      layer.inputs.empty() ? "" : " of " + text(net[layer.inputs[0]].shape)));
    if (text(*shape) != text(layer.shape))
      return fault(fmt::format("layer {} has shape {} (from its inputs: {})", layer.name,
                               text(layer.shape), text(*shape)));
  }
  if (!small_enough(net, layer, batch))
    return fault(fmt::format("layer {} is too large at batch {} (a tensor may have 2^50 bytes)",
                             layer.name, batch));
  return std::nullopt;
}

/// Every layer but the loss is read, and the loss is not.
std::optional<Error> reader_fault(const Network& net) {
  std::vector<bool> is_read(net.layers.size(), false);
  std::int64_t losses = 0;
  for (const Layer& layer : net.layers) {
    for (const LayerId input : layer.inputs) is_read[input.index] = true;
    losses += layer.kind == LayerKind::softmax_cross_entropy;
  }
  if (losses != 1)
    return fault(
        fmt::format("network {} has {} losses (one softmax_cross_entropy)", net.name, losses));
  for (std::size_t i = 0; i < net.layers.size(); ++i) {
    const bool loss = net.layers[i].kind == LayerKind::softmax_cross_entropy;
    if (loss == is_read[i])
      return fault(fmt::format("layer {} {}", net.layers[i].name,
                               loss ? "is the loss but is read" : "is read by no layer"));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Shape> output_shape(const Network& net, const Layer& layer) {
  if (layer.inputs.empty() || (layer.inputs.size() > 1 && !takes_many(layer.kind)))
    return std::nullopt;
  for (const LayerId input : layer.inputs)
    if (input.index >= net.layers.size() || !valid(net[input].shape)) return std::nullopt;
  const std::optional<Shape> shape = unchecked_shape(net, layer);
  return shape && valid(*shape) ? shape : std::nullopt;
}

std::optional<Error> find_fault(const Network& net, std::int64_t batch) {
  if (!dimension(batch)) return fault(fmt::format("batch {} (1 to 2^31 - 1)", batch));
  if (net.layers.empty()) return fault("network " + net.name + " has no layers");
  std::unordered_set<std::string_view> names;
  for (std::uint32_t i = 0; i < net.layers.size(); ++i) {
    if (auto error = layer_fault(net, i, batch)) return error;
    if (!names.insert(net.layers[i].name).second)
      return fault("two layers are named " + net.layers[i].name);
  }
  return reader_fault(net);
}

}  // namespace superneurons
