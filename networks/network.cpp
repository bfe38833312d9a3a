#include "networks/network.h"

#include <fmt/core.h>

#include "networks/shapes.h"

namespace superneurons {
namespace {

/// Adds a layer; one that does not fit gets the shape 0x0x0, which lower() reports.
LayerId append(Network& net, Layer layer, std::string_view prefix) {
  const LayerId id{static_cast<std::uint32_t>(net.layers.size())};
  if (layer.name.empty()) layer.name = fmt::format("{}{}", prefix, id.index);
  layer.shape = output_shape(net, layer).value_or(Shape{0, 0, 0});
  net.layers.push_back(std::move(layer));
  return id;
}

Layer layer_of(LayerKind kind, std::vector<LayerId> inputs, std::string name) {
  Layer layer;
  layer.kind = kind;
  layer.name = std::move(name);
  layer.inputs = std::move(inputs);
  return layer;
}

LayerId pool(Network& net, LayerKind kind, LayerId in, const PoolOptions& options, std::string name,
             std::string_view prefix) {
  Layer layer = layer_of(kind, {in}, std::move(name));
  layer.kernel = options.kernel;
  layer.stride = options.stride;
  layer.pad = options.pad;
  return append(net, std::move(layer), prefix);
}

}  // namespace

Network image_network(std::string name, Shape image, std::int64_t classes) {
  Network net;
  net.name = std::move(name);
  net.classes = classes;
  Layer data = layer_of(LayerKind::data, {}, "data");
  data.shape = image;
  net.layers.push_back(std::move(data));
  return net;
}

LayerId convolution(Network& net, LayerId in, const ConvolutionOptions& options, std::string name) {
  Layer layer = layer_of(LayerKind::convolution, {in}, std::move(name));
  layer.shape.channels = options.channels;
  layer.kernel = options.kernel;
  layer.stride = options.stride;
  layer.pad = options.pad;
  layer.bias = options.bias;
  return append(net, std::move(layer), "conv");
}

LayerId linear(Network& net, LayerId in, const LinearOptions& options, std::string name) {
  Layer layer = layer_of(LayerKind::linear, {in}, std::move(name));
  layer.shape.channels = options.features;
  layer.bias = options.bias;
  return append(net, std::move(layer), "fc");
}

LayerId relu(Network& net, LayerId in, std::string name) {
  return append(net, layer_of(LayerKind::relu, {in}, std::move(name)), "relu");
}

LayerId max_pool(Network& net, LayerId in, const PoolOptions& options, std::string name) {
  return pool(net, LayerKind::max_pool, in, options, std::move(name), "pool");
}

LayerId average_pool(Network& net, LayerId in, const PoolOptions& options, std::string name) {
  return pool(net, LayerKind::average_pool, in, options, std::move(name), "avgpool");
}

LayerId lrn(Network& net, LayerId in, std::string name) {
  return append(net, layer_of(LayerKind::lrn, {in}, std::move(name)), "lrn");
}

LayerId batch_norm(Network& net, LayerId in, std::string name) {
  return append(net, layer_of(LayerKind::batch_norm, {in}, std::move(name)), "bn");
}

LayerId dropout(Network& net, LayerId in, double rate, std::string name) {
  Layer layer = layer_of(LayerKind::dropout, {in}, std::move(name));
  layer.rate = rate;
  return append(net, std::move(layer), "drop");
}

LayerId add(Network& net, std::vector<LayerId> in, std::string name) {
  return append(net, layer_of(LayerKind::add, std::move(in), std::move(name)), "add");
}

LayerId concat(Network& net, std::vector<LayerId> in, std::string name) {
  return append(net, layer_of(LayerKind::concat, std::move(in), std::move(name)), "concat");
}

LayerId softmax_cross_entropy(Network& net, LayerId in, std::string name) {
  return append(net, layer_of(LayerKind::softmax_cross_entropy, {in}, std::move(name)), "softmax");
}

}  // namespace superneurons
