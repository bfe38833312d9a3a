// Common ground of both lowerings: makes tensors and ops of a trace as networks/operations.md says.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "networks/network.h"

namespace superneurons {

/// Tensors around one layer.
struct LayerTensors {
  std::vector<TensorId> x;           // one per input
  TensorId y{};                      // may be one of x: in place
  std::vector<TensorId> parameters;  // weight, [bias] or gamma, beta
  std::vector<TensorId> buffers;     // running_mean, running_var; labels and loss of the loss
  std::vector<TensorId> saved;       // mask or save_mean, save_invstd
};

class TraceBuilder {
 public:
  /// The network must have no fault; both must outlive the builder.
  TraceBuilder(const Network& net, const LoweringOptions& options);

  const Network& net() const { return net_; }
  const LoweringOptions& options() const { return options_; }
  std::int64_t batch() const { return options_.batch; }

  /// The batch, carried.
  TensorId data();
  /// A float tensor of the batch shaped as the layer's output, made by an op of layer `maker`.
  TensorId values(LayerId shaped_as, std::string name, Role role, std::string maker);

  /// Makes the layer's parameters, buffers and saved tensors.
  LayerTensors begin_layer(LayerId id, std::vector<TensorId> x, TensorId y);
  void forward(LayerId id, const LayerTensors& tensors);

  /// The op of a layer without parameters whose gradient goes to one tensor.
  void backward(LayerId id, std::vector<TensorId> reads, std::vector<TensorId> writes,
                const std::string& suffix = "backward");
  /// The gradient of a parameter, to be used in the update phase. `held`: there between training
  /// steps, though its value is not needed.
  TensorId gradient_of(TensorId parameter, bool held = false);
  /// One of the backward ops of convolution, linear ("BackwardData") and batch norm.
  void parameter_backward(LayerId id, const std::string& kind_suffix, const std::string& suffix,
                          std::vector<TensorId> reads, std::vector<TensorId> writes);

  /// All backward ops of a layer are there: its parameters may be updated.
  void layer_done();

  void accumulate(std::string name, std::string layer, TensorId sum, TensorId x);
  /// y = x1 + x2 in the backward phase.
  void sum(std::string name, std::string layer, TensorId x1, TensorId x2, TensorId y);
  void copy(std::string name, Phase phase, std::string layer, TensorId x,
            std::vector<TensorId> outputs);

  /// Updates the parameters that got a gradient since the last time, in order.
  void update();
  /// update(), and what the program frees after which op.
  Result<Trace> finish();

 private:
  using Attributes = std::map<std::string, double>;

  TensorId add_tensor(Tensor tensor, std::int64_t element_bytes);
  TensorId add_float(std::string name, std::vector<std::int64_t> shape, Role role,
                     const std::string& layer, const char* init = "", double scale = 0);
  TensorId add_parameter(const Layer& layer, const char* suffix, std::vector<std::int64_t> shape,
                         const char* init, double scale);
  void add_op(Op op, const std::vector<TensorId>& reads, const std::vector<TensorId>& writes);
  void add_update(TensorId parameter, TensorId gradient);
  void add_updates();
  void begin_loss(const Layer& layer, LayerTensors& tensors);
  Attributes attributes(const Layer& layer) const;
  double forward_flops(const Layer& layer) const;
  std::int64_t count(TensorId id) const;

  const Network& net_;
  const LoweringOptions& options_;
  Trace trace_;
  std::vector<std::pair<TensorId, TensorId>> gradients_;  // not yet updated: parameter, gradient
  TensorId loss_{};
  double access_bytes_ = 0;
};

}  // namespace superneurons
