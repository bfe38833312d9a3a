// What a good runtime does: layers in the order of the graph, in place wherever no value is lost,
// gradients shared by the branches of an add and summed in place where branches meet.
#include <fmt/core.h>

#include <optional>

#include "networks/lowerings.h"

namespace superneurons {
namespace {

/// Whether the backward op reads the layer's own output (networks/operations.md).
bool backward_reads_output(LayerKind kind) {
  return kind == LayerKind::relu || kind == LayerKind::max_pool || kind == LayerKind::lrn ||
         kind == LayerKind::softmax_cross_entropy;
}

class NativeLowering {
 public:
  explicit NativeLowering(TraceBuilder& builder)
      : builder_(builder),
        net_(builder.net()),
        uses_(net_.layers.size(), 0),
        trains_(net_.layers.size(), false),
        tensors_(net_.layers.size()),
        gradients_(net_.layers.size()),
        numbers_(net_.layers.size(), 0),
        merges_(net_.layers.size(), 0) {
    for (std::size_t i = 0; i < net_.layers.size(); ++i) {
      const Layer& layer = net_.layers[i];
      trains_[i] = layer.kind == LayerKind::convolution || layer.kind == LayerKind::linear ||
                   layer.kind == LayerKind::batch_norm;
      for (const LayerId input : layer.inputs) {
        ++uses_[input.index];
        trains_[i] = trains_[i] || trains_[input.index];
      }
    }
  }

  void lower() {
    tensors_[0].y = builder_.data();
    const auto layers = static_cast<std::uint32_t>(net_.layers.size());
    for (std::uint32_t i = 1; i < layers; ++i) forward({i});
    for (std::uint32_t i = layers; i-- > 1;) {
      if (trains_[i]) backward({i});
      builder_.layer_done();
    }
  }

 private:
  /// Whether the only reader of the layer's output may overwrite it.
  bool may_overwrite(LayerId id) const {
    const LayerKind kind = net_[id].kind;
    return kind != LayerKind::data && !backward_reads_output(kind) && uses_[id.index] == 1;
  }

  void forward(LayerId id) {
    const Layer& layer = net_[id];
    std::vector<TensorId> x;
    std::optional<std::size_t> in_place;
    const bool can = layer.kind == LayerKind::relu || layer.kind == LayerKind::add;
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      x.push_back(tensors_[layer.inputs[i].index].y);
      if (can && !in_place && may_overwrite(layer.inputs[i])) in_place = i;
    }
    if (in_place) std::swap(x[0], x[*in_place]);  // a sum may be taken in any order
    const TensorId y =
        in_place ? x[0] : builder_.values(id, layer.name + ".out", Role::activation, layer.name);
    tensors_[id.index] = builder_.begin_layer(id, std::move(x), y);
    builder_.forward(id, tensors_[id.index]);
  }

  /// A gradient on its way to the output of a layer.
  struct Contribution {
    LayerId to;
    TensorId gradient;
  };

  void backward(LayerId id) {
    std::vector<Contribution> contributions = backward_op(id);
    if (gradients_[id.index]) --holders(*gradients_[id.index]);
    std::erase_if(contributions, [&](const Contribution& c) { return !trains_[c.to.index]; });
    // All holders are counted before any of them may sum in place.
    for (const Contribution& c : contributions) ++holders(c.gradient);
    for (const Contribution& c : contributions) merge(c);
  }

  std::vector<Contribution> backward_op(LayerId id) {
    const Layer& layer = net_[id];
    const LayerTensors& at = tensors_[id.index];
    std::vector<Contribution> to;
    if (layer.kind == LayerKind::softmax_cross_entropy) {
      to = {fresh(id, 0)};
      builder_.backward(id, {at.y, at.buffers[0]}, {to[0].gradient});
      return to;
    }
    const TensorId dy = *gradients_[id.index];
    switch (layer.kind) {
      case LayerKind::convolution:
      case LayerKind::linear:
        return products(id, dy);
      case LayerKind::add:  // no op: the branches share the gradient
        for (const LayerId input : layer.inputs) to.push_back({input, dy});
        return to;
      case LayerKind::relu:
        to = {holders(dy) == 1 ? Contribution{layer.inputs[0], dy} : fresh(id, 0)};
        break;
      default:
        for (std::size_t i = 0; i < layer.inputs.size(); ++i) to.push_back(fresh(id, i));
    }
    std::vector<TensorId> writes;
    for (const Contribution& c : to) writes.push_back(c.gradient);
    for (const TensorId parameter : at.parameters)
      writes.push_back(builder_.gradient_of(parameter));
    builder_.backward(id, reads(layer.kind, at, dy), std::move(writes));
    return to;
  }

  static std::vector<TensorId> reads(LayerKind kind, const LayerTensors& at, TensorId dy) {
    switch (kind) {
      case LayerKind::relu:
        return {at.y, dy};
      case LayerKind::max_pool:
      case LayerKind::lrn:
        return {at.x[0], at.y, dy};
      case LayerKind::batch_norm:
        return {at.x[0], dy, at.parameters[0], at.saved[0], at.saved[1]};
      case LayerKind::dropout:
        return {dy, at.saved[0]};
      default:
        return {dy};
    }
  }

  /// Convolution and linear: the gradients of the parameters first, so that x can go before dx
  /// comes.
  std::vector<Contribution> products(LayerId id, TensorId dy) {
    const LayerTensors& at = tensors_[id.index];
    const bool filter = net_[id].kind == LayerKind::convolution;
    if (at.parameters.size() > 1)
      builder_.parameter_backward(id, "BackwardBias", "backward_bias", {dy},
                                  {builder_.gradient_of(at.parameters[1])});
    builder_.parameter_backward(id, filter ? "BackwardFilter" : "BackwardWeight",
                                filter ? "backward_filter" : "backward_weight", {at.x[0], dy},
                                {builder_.gradient_of(at.parameters[0])});
    if (!trains_[net_[id].inputs[0].index]) return {};
    const Contribution to = fresh(id, 0);
    builder_.parameter_backward(id, "BackwardData", "backward_data", {at.parameters[0], dy},
                                {to.gradient});
    return {to};
  }

  /// A new tensor for what the layer sends to its input.
  Contribution fresh(LayerId id, std::size_t input) {
    const LayerId to = net_[id].inputs[input];
    return {to, new_gradient(to, net_[id].name)};
  }

  TensorId new_gradient(LayerId of, const std::string& maker) {
    const std::uint32_t number = numbers_[of.index]++;
    std::string name = net_[of].name + ".out.grad";
    if (number > 0) name += fmt::format(".{}", number + 1);
    return builder_.values(of, std::move(name), Role::activation_gradient, maker);
  }

  /// Adds to the gradient of a layer's output; in place only on a tensor that no other layer holds.
  void merge(const Contribution& c) {
    std::optional<TensorId>& gradient = gradients_[c.to.index];
    if (!gradient) {
      gradient = c.gradient;
      return;
    }
    const std::string& layer = net_[c.to].name;
    std::string name = fmt::format("{}.accumulate{}", layer, ++merges_[c.to.index]);
    TensorId sum = *gradient;
    TensorId other = c.gradient;
    if (holders(sum) > 1) std::swap(sum, other);
    if (holders(sum) > 1) {
      const TensorId total = new_gradient(c.to, layer);
      builder_.sum(std::move(name), layer, *gradient, c.gradient, total);
      --holders(sum);
      sum = total;
      ++holders(sum);
    } else {
      builder_.accumulate(std::move(name), layer, sum, other);
    }
    --holders(other);
    gradient = sum;
  }

  /// How many layers hold the tensor as the gradient of their output.
  std::uint32_t& holders(TensorId id) {
    if (id.index >= holders_.size()) holders_.resize(id.index + std::size_t{1}, 0);
    return holders_[id.index];
  }

  TraceBuilder& builder_;
  const Network& net_;
  std::vector<std::uint32_t> uses_;  // of each layer's output
  std::vector<bool> trains_;         // whether a parameter at or before the layer wants a gradient
  std::vector<LayerTensors> tensors_;
  std::vector<std::optional<TensorId>> gradients_;
  std::vector<std::uint32_t> numbers_, merges_;  // gradients made for, and sums at, each layer
  std::vector<std::uint32_t> holders_;           // by tensor
};

}  // namespace

void lower_native(TraceBuilder& builder) { NativeLowering(builder).lower(); }

}  // namespace superneurons
