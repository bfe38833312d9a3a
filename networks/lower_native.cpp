// What a good runtime does: layers in the order of the graph, in place wherever no value is lost,
// gradients shared by the branches of an add and summed in place where branches meet. A style says
// where another runtime has other habits (networks/lowering_style.h).
#include <fmt/core.h>

#include <optional>

#include "networks/lowerings.h"
#include "networks/route.h"

namespace superneurons {
namespace {

/// Whether the backward op reads the layer's own output (networks/operations.md).
bool backward_reads_output(LayerKind kind) {
  return kind == LayerKind::relu || kind == LayerKind::max_pool || kind == LayerKind::lrn ||
         kind == LayerKind::softmax_cross_entropy;
}

class NativeLowering {
 public:
  NativeLowering(TraceBuilder& builder, const LoweringStyle& style)
      : builder_(builder),
        style_(style),
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
    const LayerOrders orders = layer_orders(net_, builder_.options().order);
    for (const std::uint32_t i : orders.forward)
      if (i != 0) forward({i});
    for (const std::uint32_t i : orders.backward) {
      if (trains_[i]) backward({i});
      builder_.layer_done();
    }
  }

 private:
  /// Whether layers of this kind write onto an input if they may.
  bool works_in_place(LayerKind kind) const {
    return (kind == LayerKind::relu && !style_.relu_keeps_input) ||
           (kind == LayerKind::add && style_.add_in_place) ||
           (kind == LayerKind::dropout && style_.dropout_in_place);
  }

  /// Whether `reader`, the only one of the layer's output, may overwrite it.
  bool may_overwrite(LayerId id, LayerKind reader) const {
    const LayerKind kind = net_[id].kind;
    if (kind == LayerKind::data || uses_[id.index] != 1) return false;
    if (!backward_reads_output(kind)) return true;
    return kind == LayerKind::relu && reader == LayerKind::dropout;
  }

  void forward(LayerId id) {
    const Layer& layer = net_[id];
    std::vector<TensorId> x;
    std::optional<std::size_t> in_place;
    const bool can = works_in_place(layer.kind);
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) {
      x.push_back(tensors_[layer.inputs[i].index].y);
      if (can && !in_place && may_overwrite(layer.inputs[i], layer.kind)) in_place = i;
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
      case LayerKind::add:
        return summands(id, dy);
      case LayerKind::relu:
        to = {in_place_on(dy, id)};
        break;
      case LayerKind::dropout:
        to = {style_.dropout_in_place ? in_place_on(dy, id) : fresh(id, 0)};
        break;
      default:
        for (std::size_t i = 0; i < layer.inputs.size(); ++i) to.push_back(fresh(id, i));
    }
    std::vector<TensorId> writes;
    for (const Contribution& c : to) writes.push_back(c.gradient);
    for (const TensorId parameter : at.parameters) writes.push_back(gradient_of(parameter));
    builder_.backward(id, reads(layer.kind, at, dy), std::move(writes));
    return to;
  }

  TensorId gradient_of(TensorId parameter) {
    return builder_.gradient_of(parameter, style_.held_gradients);
  }

  /// The gradient of the layer's input on that of its output, unless another layer holds that too.
  Contribution in_place_on(TensorId dy, LayerId id) {
    return holders(dy) == 1 ? Contribution{net_[id].inputs[0], dy} : fresh(id, 0);
  }

  /// The inputs of an add share its gradient, which takes no op, or get copies.
  std::vector<Contribution> summands(LayerId id, TensorId dy) {
    using AddGradient = LoweringStyle::AddGradient;
    std::vector<Contribution> to;
    std::vector<TensorId> copies;
    bool share = style_.add_gradient != AddGradient::copied;
    for (std::size_t i = 0; i < net_[id].inputs.size(); ++i) {
      if (!trains_[net_[id].inputs[i].index]) continue;
      to.push_back(share ? Contribution{net_[id].inputs[i], dy} : fresh(id, i));
      if (!share) copies.push_back(to.back().gradient);
      share = share && style_.add_gradient == AddGradient::shared;
    }
    if (!copies.empty())
      builder_.copy(net_[id].name + ".backward", Phase::backward, net_[id].name, dy, copies);
    return to;
  }

  std::vector<TensorId> reads(LayerKind kind, const LayerTensors& at, TensorId dy) const {
    switch (kind) {
      case LayerKind::relu:
        if (style_.relu_keeps_input) return {at.y, dy, at.x[0]};
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
  /// comes, unless the style has it the other way round.
  std::vector<Contribution> products(LayerId id, TensorId dy) {
    const LayerTensors& at = tensors_[id.index];
    const bool filter = net_[id].kind == LayerKind::convolution;
    std::vector<Contribution> to;
    if (style_.input_gradient_first) to = input_product(id, dy);
    if (at.parameters.size() > 1)
      builder_.parameter_backward(id, "BackwardBias", "backward_bias", {dy},
                                  {gradient_of(at.parameters[1])});
    builder_.parameter_backward(id, filter ? "BackwardFilter" : "BackwardWeight",
                                filter ? "backward_filter" : "backward_weight", {at.x[0], dy},
                                {gradient_of(at.parameters[0])});
    return style_.input_gradient_first ? to : input_product(id, dy);
  }

  std::vector<Contribution> input_product(LayerId id, TensorId dy) {
    if (!trains_[net_[id].inputs[0].index]) return {};
    const Contribution to = fresh(id, 0);
    builder_.parameter_backward(id, "BackwardData", "backward_data",
                                {tensors_[id.index].parameters[0], dy}, {to.gradient});
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
    const bool first_sum = merges_[c.to.index] == 1;
    if (holders(sum) > 1) std::swap(sum, other);
    if (holders(sum) > 1 || (style_.fresh_sums && first_sum)) {
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
  const LoweringStyle& style_;
  const Network& net_;
  std::vector<std::uint32_t> uses_;  // of each layer's output
  std::vector<bool> trains_;         // whether a parameter at or before the layer wants a gradient
  std::vector<LayerTensors> tensors_;
  std::vector<std::optional<TensorId>> gradients_;
  std::vector<std::uint32_t> numbers_, merges_;  // gradients made for, and sums at, each layer
  std::vector<std::uint32_t> holders_;           // by tensor
};

}  // namespace

void lower_native(TraceBuilder& builder, const LoweringStyle& style) {
  NativeLowering(builder, style).lower();
}

}  // namespace superneurons
