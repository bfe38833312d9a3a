#include "networks/layer_costs.h"

#include <fmt/core.h>

namespace superneurons {
namespace {

constexpr double kLrnSize = 5, kLrnAlpha = 1e-4, kLrnBeta = 0.75, kLrnK = 2;
constexpr double kNormEpsilon = 1e-5, kNormMomentum = 0.1;

using Attributes = std::map<std::string, double>;

double real(std::int64_t value) { return static_cast<double>(value); }

/// Elements of a batch of that shape.
double elements(const Shape& shape, std::int64_t batch) {
  return real(batch) * real(shape.channels) * real(shape.height) * real(shape.width);
}

Attributes image(const Shape& in, std::int64_t batch) {
  return {
      {"n", real(batch)}, {"c", real(in.channels)}, {"h", real(in.height)}, {"w", real(in.width)}};
}

void add_window(Attributes& attributes, const Layer& layer) {
  attributes["stride"] = real(layer.stride);
  if (layer.pad.square()) {
    attributes["pad"] = real(layer.pad.height);
  } else {
    attributes["pad_h"] = real(layer.pad.height);
    attributes["pad_w"] = real(layer.pad.width);
  }
  attributes["oh"] = real(layer.shape.height);
  attributes["ow"] = real(layer.shape.width);
}

Attributes concat_attributes(const Network& net, const Layer& layer, std::int64_t batch) {
  Attributes attributes = {{"n", real(batch)},
                           {"hw", real(layer.shape.height) * real(layer.shape.width)},
                           {"inputs", real(static_cast<std::int64_t>(layer.inputs.size()))}};
  for (std::size_t i = 0; i < layer.inputs.size(); ++i)
    attributes[fmt::format("c{}", i)] = real(net[layer.inputs[i]].shape.channels);
  return attributes;
}

}  // namespace

Attributes layer_attributes(const Network& net, const Layer& layer, std::int64_t batch) {
  const Shape& in = net[layer.inputs[0]].shape;
  Attributes attributes = image(in, batch);
  switch (layer.kind) {
    case LayerKind::convolution:
      attributes["k"] = real(layer.shape.channels);
      attributes["r"] = real(layer.kernel.height);
      attributes["s"] = real(layer.kernel.width);
      add_window(attributes, layer);
      return attributes;
    case LayerKind::max_pool:
    case LayerKind::average_pool:
      attributes["window"] = real(layer.kernel.height);
      add_window(attributes, layer);
      return attributes;
    case LayerKind::linear:
      return {{"n", real(batch)}, {"in", real(in.count())}, {"out", real(layer.shape.channels)}};
    case LayerKind::lrn:
      attributes["size"] = kLrnSize;
      attributes["alpha"] = kLrnAlpha;
      attributes["beta"] = kLrnBeta;
      attributes["k"] = kLrnK;
      return attributes;
    case LayerKind::batch_norm:
      attributes["epsilon"] = kNormEpsilon;
      attributes["momentum"] = kNormMomentum;
      return attributes;
    case LayerKind::dropout:
      return {{"count", elements(in, batch)}, {"rate", layer.rate}};
    case LayerKind::add:
      return {{"count", elements(in, batch)},
              {"inputs", real(static_cast<std::int64_t>(layer.inputs.size()))}};
    case LayerKind::concat:
      return concat_attributes(net, layer, batch);
    case LayerKind::softmax_cross_entropy:
      return {{"n", real(batch)}, {"classes", real(net.classes)}};
    case LayerKind::relu:
    case LayerKind::data:
      break;
  }
  return {{"count", elements(in, batch)}};
}

// Operations per element beyond the matrix products are counted from the formulas, a power, an
// exponential or a logarithm as ten; such ops are bound by memory traffic.
double layer_flops(const Network& net, const Layer& layer, std::int64_t batch) {
  const Shape& in = net[layer.inputs[0]].shape;
  const double out = elements(layer.shape, batch);
  switch (layer.kind) {
    case LayerKind::convolution:
      return 2 * out * real(in.channels) * real(layer.kernel.height) * real(layer.kernel.width);
    case LayerKind::linear:
      return 2 * out * real(in.count());
    case LayerKind::max_pool:
    case LayerKind::average_pool:
      return out * real(layer.kernel.height) * real(layer.kernel.width);
    case LayerKind::lrn:
      return out * (2 * kLrnSize + 13);
    case LayerKind::batch_norm:
      return out * 8;
    case LayerKind::dropout:
      return out * 2;
    case LayerKind::add:
      return out * real(static_cast<std::int64_t>(layer.inputs.size()) - 1);
    case LayerKind::softmax_cross_entropy:
      return out * 14;
    case LayerKind::relu:
      return out;
    case LayerKind::concat:
    case LayerKind::data:
      break;
  }
  return 0;
}

double backward_factor(LayerKind kind) {
  if (kind == LayerKind::lrn) return 2;
  if (kind == LayerKind::batch_norm) return 1.5;
  if (kind == LayerKind::softmax_cross_entropy) return 1.0 / 7;  // subtract and divide
  return 1;
}

}  // namespace superneurons
