// What the runtime of the paper did: SuperNeurons (PPoPP 2018) and its release. Layers in the order
// of its route unless another is asked for; every use of an output has a tensor of its own (forks
// copy), every gradient too; a fused backward op per layer that keeps all that the release's
// dependency lists named; an input gradient for the first layer.
#include <fmt/core.h>

#include "networks/lowerings.h"
#include "networks/route.h"

namespace superneurons {
namespace {

class PaperLowering {
 public:
  explicit PaperLowering(TraceBuilder& builder)
      : builder_(builder),
        net_(builder.net()),
        tensors_(net_.layers.size()),
        uses_(net_.layers.size()),
        slots_(net_.layers.size()) {
    for (std::uint32_t i = 0; i < net_.layers.size(); ++i)
      for (const LayerId input : net_.layers[i].inputs) {
        auto& uses = uses_[input.index];
        slots_[i].push_back(static_cast<std::uint32_t>(uses.size()));
        uses.emplace_back();
      }
  }

  void lower() {
    LayerOrder order = builder_.options().order;
    if (order == LayerOrder::usual) order = LayerOrder::route;
    const LayerOrders orders = layer_orders(net_, order);
    for (const std::uint32_t i : orders.forward) forward({i});
    for (const std::uint32_t i : orders.backward) {
      backward({i});
      builder_.layer_done();
    }
  }

 private:
  /// One use of a layer's output by another layer: its own copy where there are several.
  struct Use {
    TensorId value{};
    TensorId gradient{};
  };

  void forward(LayerId id) {
    const Layer& layer = net_[id];
    LayerTensors& at = tensors_[id.index];
    if (layer.kind == LayerKind::data) {
      at.y = builder_.data();
    } else {
      std::vector<TensorId> x;
      for (std::size_t i = 0; i < layer.inputs.size(); ++i) x.push_back(use(id, i).value);
      const TensorId y = builder_.values(id, layer.name + ".out", Role::activation, layer.name);
      at = builder_.begin_layer(id, std::move(x), y);
      builder_.forward(id, at);
    }
    fork(id);
  }

  Use& use(LayerId id, std::size_t input) {
    return uses_[net_[id].inputs[input].index][slots_[id.index][input]];
  }

  /// FORK: a deep copy per branch.
  void fork(LayerId id) {
    std::vector<Use>& uses = uses_[id.index];
    if (uses.size() == 1) uses[0].value = tensors_[id.index].y;
    if (uses.size() < 2) return;
    const std::string layer = net_[id].name + ".fork";
    std::vector<TensorId> copies;
    for (Use& use : uses) {
      use.value = builder_.values(id, fmt::format("{}.out{}", layer, copies.size()),
                                  Role::activation, layer);
      copies.push_back(use.value);
    }
    builder_.copy(layer + ".forward", Phase::forward, layer, tensors_[id.index].y, copies);
  }

  /// The gradient of a layer's output: a fork sums into the gradient of branch 0.
  TensorId gradient(LayerId id) {
    const std::vector<Use>& uses = uses_[id.index];
    const std::string layer = net_[id].name + ".fork";
    for (std::size_t i = 1; i < uses.size(); ++i)
      builder_.accumulate(fmt::format("{}.backward{}", layer, i), layer, uses[0].gradient,
                          uses[i].gradient);
    return uses[0].gradient;
  }

  /// A new tensor for the gradient of an input.
  TensorId fresh(LayerId id, std::size_t input) {
    const LayerId from = net_[id].inputs[input];
    std::string name = net_[from].name + ".out.grad";
    if (uses_[from.index].size() > 1)
      name = fmt::format("{}.fork.out{}.grad", net_[from].name, slots_[id.index][input]);
    return use(id, input).gradient =
               builder_.values(from, std::move(name), Role::activation_gradient, net_[id].name);
  }

  void backward(LayerId id) {
    const Layer& layer = net_[id];
    const LayerTensors& at = tensors_[id.index];
    if (layer.kind == LayerKind::softmax_cross_entropy) {
      use(id, 0).gradient = at.y;  // in place on its own output
      return builder_.backward(id, {at.y, at.buffers[0], at.x[0]}, {at.y});
    }
    const TensorId dy = gradient(id);
    switch (layer.kind) {
      case LayerKind::data:
        return;
      case LayerKind::add:
        return join(id, dy);
      case LayerKind::relu:
        use(id, 0).gradient = dy;
        return builder_.backward(id, {at.y, dy, at.x[0]}, {dy});
      case LayerKind::lrn:
        use(id, 0).gradient = dy;
        return builder_.backward(id, {at.x[0], at.y, dy}, {dy});
      default:
        break;
    }
    std::vector<TensorId> writes;
    for (std::size_t i = 0; i < layer.inputs.size(); ++i) writes.push_back(fresh(id, i));
    for (const TensorId parameter : at.parameters)
      writes.push_back(builder_.gradient_of(parameter));
    builder_.backward(id, reads(layer.kind, at, dy), std::move(writes));
  }

  /// What the release's dependency lists name for backward.
  static std::vector<TensorId> reads(LayerKind kind, const LayerTensors& at, TensorId dy) {
    switch (kind) {
      case LayerKind::convolution:
      case LayerKind::linear:
        return {at.x[0], at.parameters[0], dy};
      case LayerKind::batch_norm:
        return {at.x[0], dy, at.parameters[0], at.saved[0], at.saved[1]};
      case LayerKind::max_pool:
        return {at.x[0], at.y, dy};
      case LayerKind::average_pool:
        return {dy, at.x[0], at.y};
      case LayerKind::dropout:
        return {dy, at.saved[0]};
      default:
        return {dy};
    }
  }

  /// JOIN: branch 0 takes the gradient itself, the others copies.
  void join(LayerId id, TensorId dy) {
    use(id, 0).gradient = dy;
    std::vector<TensorId> copies;
    for (std::size_t i = 1; i < net_[id].inputs.size(); ++i) copies.push_back(fresh(id, i));
    if (!copies.empty())
      builder_.copy(net_[id].name + ".backward", Phase::backward, net_[id].name, dy, copies);
  }

  TraceBuilder& builder_;
  const Network& net_;
  std::vector<LayerTensors> tensors_;
  std::vector<std::vector<Use>> uses_;  // by layer, in the order of its readers
  Edges slots_;                         // which use each input of a layer is
};

}  // namespace

void lower_paper(TraceBuilder& builder) { PaperLowering(builder).lower(); }

}  // namespace superneurons
