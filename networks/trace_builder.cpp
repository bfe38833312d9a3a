#include "networks/trace_builder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "networks/layer_costs.h"

namespace superneurons {
namespace {

std::vector<Access> whole(const Trace& trace, const std::vector<TensorId>& ids) {
  std::vector<Access> accesses;
  accesses.reserve(ids.size());
  for (const TensorId id : ids) accesses.push_back({id, {}, trace[id].bytes});
  return accesses;
}

std::string_view kind_name(LayerKind kind) {
  switch (kind) {
    case LayerKind::convolution:
      return "Conv2d";
    case LayerKind::linear:
      return "Linear";
    case LayerKind::relu:
      return "Relu";
    case LayerKind::max_pool:
      return "MaxPool";
    case LayerKind::average_pool:
      return "AvgPool";
    case LayerKind::lrn:
      return "Lrn";
    case LayerKind::batch_norm:
      return "BatchNorm";
    case LayerKind::dropout:
      return "Dropout";
    case LayerKind::add:
      return "Add";
    case LayerKind::concat:
      return "Concat";
    case LayerKind::softmax_cross_entropy:
      return "SoftmaxCrossEntropy";
    case LayerKind::data:
      break;
  }
  return "Data";
}

bool is_gemm(LayerKind kind) { return kind == LayerKind::convolution || kind == LayerKind::linear; }

std::vector<TensorId> joined(std::initializer_list<std::vector<TensorId>> parts) {
  std::vector<TensorId> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Op op_of(std::string name, std::string kind, Phase phase, std::string layer) {
  Op op;
  op.name = std::move(name);
  op.kind = std::move(kind);
  op.phase = phase;
  op.layer = std::move(layer);
  op.choices.emplace_back();
  return op;
}

void set(Trace& trace, Fact fact, Capability capability) {
  trace.capabilities[static_cast<std::size_t>(fact)] = capability;
}

/// What the program gives back after its last use: all that is not carried and not the loss.
void free_after_last_use(Trace& trace, TensorId loss) {
  std::vector<std::uint32_t> last(trace.tensors.size(), 0);
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    for (const Access& access : trace.ops[i].reads) last[access.tensor.index] = i;
    for (const Access& access : trace.ops[i].writes) last[access.tensor.index] = i;
  }
  std::vector<bool> carried(trace.tensors.size(), false);
  for (const Carry& carry : trace.carry) carried[carry.start.index] = true;
  for (std::size_t i = 0; i < trace.tensors.size(); ++i)
    if (!carried[i]) trace.tensors[i].freed_before = OpId{last[i] + 1};
  const auto end = static_cast<std::uint32_t>(trace.ops.size());
  trace[loss].freed_before = OpId{end};  // the program reads it after the step
}

}  // namespace

TraceBuilder::TraceBuilder(const Network& net, const LoweringOptions& options)
    : net_(net), options_(options) {
  trace_.network = net.name;
  trace_.name = fmt::format("{}-b{}", net.name, options.batch);
  trace_.lowering = name_of(options.lowering);
  trace_.origin = fmt::format("{} lowering of the layer graph", trace_.lowering);
  if (options.lowering != Lowering::native) trace_.name += "-" + trace_.lowering;
  if (options.order != LayerOrder::usual) {
    const std::string_view order = kLayerOrderNames[static_cast<std::size_t>(options.order)];
    trace_.name += fmt::format("-{}", order);
    trace_.origin += fmt::format(", layers in {} order", order);
  }
  if (options.updates == Updates::arrive) trace_.name += "-arrive";
  trace_.batch = options.batch;
  trace_.math = options.tf32 ? "tf32" : "fp32";
  for (const Fact fact :
       {Fact::accesses, Fact::frees, Fact::layers, Fact::phases, Fact::flops, Fact::native})
    set(trace_, fact, Capability::exact);
  trace_.ops.reserve(6 * net.layers.size());
  trace_.tensors.reserve(8 * net.layers.size());
}

TensorId TraceBuilder::add_tensor(Tensor tensor, std::int64_t element_bytes) {
  const TensorId id{static_cast<std::uint32_t>(trace_.tensors.size())};
  tensor.bytes = {element_bytes};
  for (const std::int64_t size : tensor.shape) tensor.bytes.count *= size;
  if (tensor.role == Role::input || tensor.role == Role::parameter || tensor.role == Role::buffer ||
      tensor.role == Role::optimizer_state)
    trace_.carry.push_back({id, id});
  trace_.tensors.push_back(std::move(tensor));
  return id;
}

TensorId TraceBuilder::add_float(std::string name, std::vector<std::int64_t> shape, Role role,
                                 const std::string& layer, const char* init, double scale) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.shape = std::move(shape);
  tensor.role = role;
  tensor.layer = layer;
  tensor.init = init;
  tensor.init_scale = scale;
  return add_tensor(std::move(tensor), 4);
}

TensorId TraceBuilder::add_parameter(const Layer& layer, const char* suffix,
                                     std::vector<std::int64_t> shape, const char* init,
                                     double scale) {
  return add_float(layer.name + suffix, std::move(shape), Role::parameter, layer.name, init, scale);
}

TensorId TraceBuilder::data() {
  const Shape& shape = net_.layers[0].shape;
  return add_float("data", {options_.batch, shape.channels, shape.height, shape.width}, Role::input,
                   net_.layers[0].name, "uniform", 1);
}

TensorId TraceBuilder::values(LayerId shaped_as, std::string name, Role role, std::string maker) {
  const Shape& shape = net_[shaped_as].shape;
  return add_float(std::move(name), {options_.batch, shape.channels, shape.height, shape.width},
                   role, maker);
}

void TraceBuilder::begin_loss(const Layer& layer, LayerTensors& tensors) {
  Tensor labels;
  labels.name = "labels";
  labels.dtype = "i32";
  labels.shape = {options_.batch};
  labels.layer = layer.name;
  labels.role = Role::input;
  labels.init = "labels";
  labels.init_scale = static_cast<double>(net_.classes);
  tensors.buffers = {add_tensor(std::move(labels), 4)};
  loss_ = add_float("loss", {1}, Role::temporary, layer.name);
  tensors.buffers.push_back(loss_);
}

LayerTensors TraceBuilder::begin_layer(LayerId id, std::vector<TensorId> x, TensorId y) {
  const Layer& layer = net_[id];
  const Shape& in = net_[layer.inputs[0]].shape;
  const std::int64_t channels = layer.shape.channels;
  LayerTensors tensors;
  tensors.x = std::move(x);
  tensors.y = y;
  if (is_gemm(layer.kind)) {
    std::vector<std::int64_t> shape = {channels, in.channels, layer.kernel.height,
                                       layer.kernel.width};
    if (layer.kind == LayerKind::linear) shape = {channels, in.count()};
    double fan_in = 1;
    for (std::size_t i = 1; i < shape.size(); ++i) fan_in *= static_cast<double>(shape[i]);
    // He et al. 2015: keeps the variance of activations through layers with ReLU.
    tensors.parameters.push_back(
        add_parameter(layer, ".weight", std::move(shape), "uniform", std::sqrt(6 / fan_in)));
    if (layer.bias)
      tensors.parameters.push_back(add_parameter(layer, ".bias", {channels}, "zeros", 0));
  } else if (layer.kind == LayerKind::batch_norm) {
    tensors.parameters = {add_parameter(layer, ".gamma", {channels}, "ones", 0),
                          add_parameter(layer, ".beta", {channels}, "zeros", 0)};
    tensors.buffers = {
        add_float(layer.name + ".running_mean", {channels}, Role::buffer, layer.name, "zeros"),
        add_float(layer.name + ".running_var", {channels}, Role::buffer, layer.name, "ones")};
    tensors.saved = {add_float(layer.name + ".save_mean", {channels}, Role::saved, layer.name),
                     add_float(layer.name + ".save_invstd", {channels}, Role::saved, layer.name)};
  } else if (layer.kind == LayerKind::dropout) {
    Tensor mask;
    mask.name = layer.name + ".mask";
    mask.dtype = "u8";
    mask.shape = {options_.batch, in.channels, in.height, in.width};
    mask.layer = layer.name;
    mask.role = Role::saved;
    tensors.saved = {add_tensor(std::move(mask), 1)};
  } else if (layer.kind == LayerKind::softmax_cross_entropy) {
    begin_loss(layer, tensors);
  }
  return tensors;
}

void TraceBuilder::forward(LayerId id, const LayerTensors& tensors) {
  const Layer& layer = net_[id];
  Op op = op_of(layer.name + ".forward", fmt::format("{}Forward", kind_name(layer.kind)),
                Phase::forward, layer.name);
  op.attributes = attributes(layer);
  op.flops = forward_flops(layer);
  op.random = layer.kind == LayerKind::dropout;
  std::vector<TensorId> reads = joined({tensors.x, tensors.parameters});
  std::vector<TensorId> writes = joined({{tensors.y}, tensors.saved});
  if (layer.kind == LayerKind::batch_norm) {
    op.once = tensors.buffers;
    reads = joined({reads, tensors.buffers});
    writes = joined({writes, tensors.buffers});
  } else if (layer.kind == LayerKind::softmax_cross_entropy) {
    reads.push_back(tensors.buffers[0]);
    writes.push_back(tensors.buffers[1]);
  }
  add_op(std::move(op), reads, writes);
}

void TraceBuilder::backward(LayerId id, std::vector<TensorId> reads, std::vector<TensorId> writes,
                            const std::string& suffix) {
  parameter_backward(id, "Backward", suffix, std::move(reads), std::move(writes));
}

void TraceBuilder::parameter_backward(LayerId id, const std::string& kind_suffix,
                                      const std::string& suffix, std::vector<TensorId> reads,
                                      std::vector<TensorId> writes) {
  const Layer& layer = net_[id];
  Op op = op_of(layer.name + "." + suffix, fmt::format("{}{}", kind_name(layer.kind), kind_suffix),
                Phase::backward, layer.name);
  op.attributes = attributes(layer);
  op.flops = forward_flops(layer) * backward_factor(layer.kind);
  if (is_gemm(layer.kind)) {
    if (kind_suffix == "BackwardBias") op.flops = static_cast<double>(count(reads[0]));
    if (kind_suffix == "Backward") op.flops *= 2;  // data and weights
  }
  add_op(std::move(op), reads, writes);
}

TensorId TraceBuilder::gradient_of(TensorId parameter, bool held) {
  const Tensor& of = trace_[parameter];
  const TensorId gradient =
      add_float(of.name + ".grad", of.shape, Role::gradient, std::string(of.layer));
  gradients_.emplace_back(parameter, gradient);
  if (held) trace_.carry.push_back({gradient, gradient});
  return gradient;
}

void TraceBuilder::accumulate(std::string name, std::string layer, TensorId sum, TensorId x) {
  Op op = op_of(std::move(name), "Accumulate", Phase::backward, std::move(layer));
  op.attributes["count"] = op.flops = static_cast<double>(count(sum));
  add_op(std::move(op), {sum, x}, {sum});
}

void TraceBuilder::sum(std::string name, std::string layer, TensorId x1, TensorId x2, TensorId y) {
  Op op = op_of(std::move(name), "AddForward", Phase::backward, std::move(layer));
  op.flops = static_cast<double>(count(y));
  op.attributes = {{"count", op.flops}, {"inputs", 2}};
  add_op(std::move(op), {x1, x2}, {y});
}

void TraceBuilder::copy(std::string name, Phase phase, std::string layer, TensorId x,
                        std::vector<TensorId> outputs) {
  Op op = op_of(std::move(name), "Copy", phase, std::move(layer));
  op.attributes = {{"count", static_cast<double>(count(x))},
                   {"outputs", static_cast<double>(outputs.size())}};
  add_op(std::move(op), {x}, outputs);
}

void TraceBuilder::add_op(Op op, const std::vector<TensorId>& reads,
                          const std::vector<TensorId>& writes) {
  op.reads = whole(trace_, reads);
  op.writes = whole(trace_, writes);
  double bytes = 0;
  for (const auto* accesses : {&op.reads, &op.writes})
    for (const Access& access : *accesses) {
      bytes += static_cast<double>(access.length.count);
      if (bytes < 0x1p61) op.bytes_moved += access.length;
    }
  access_bytes_ += bytes;
  const bool gemm = op.kind.starts_with("Conv2d") || op.kind.starts_with("Linear");
  if (gemm && !op.kind.ends_with("BackwardBias")) op.choices[0].math = trace_.math;
  trace_.ops.push_back(std::move(op));
}

void TraceBuilder::add_update(TensorId parameter, TensorId gradient) {
  const Tensor& weight = trace_[parameter];
  Op op = op_of(weight.name + ".update", "SgdUpdate", Phase::update, weight.layer);
  const auto elements = static_cast<double>(count(parameter));
  op.attributes = {{"count", elements},
                   {"rate", options_.rate},
                   {"momentum", options_.momentum},
                   {"weight_decay", options_.weight_decay}};
  op.flops = 6 * elements;
  op.rerunnable = false;
  const TensorId momentum =
      add_float(weight.name + ".momentum", weight.shape, Role::optimizer_state, op.layer, "zeros");
  add_op(std::move(op), {parameter, gradient, momentum}, {parameter, momentum});
}

void TraceBuilder::add_updates() {
  std::sort(gradients_.begin(), gradients_.end());
  for (const auto& [parameter, gradient] : gradients_) add_update(parameter, gradient);
  gradients_.clear();
}

void TraceBuilder::layer_done() {
  if (options_.updates == Updates::arrive) add_updates();
}

Result<Trace> TraceBuilder::finish() {
  add_updates();
  if (access_bytes_ >= 0x1p61)
    return Error{.message = fmt::format("network {} at batch {} accesses 2^61 bytes or more",
                                        net_.name, options_.batch)};
  free_after_last_use(trace_, loss_);
  return std::move(trace_);
}

std::int64_t TraceBuilder::count(TensorId id) const {
  std::int64_t elements = 1;
  for (const std::int64_t size : trace_[id].shape) elements *= size;
  return elements;
}

std::map<std::string, double> TraceBuilder::attributes(const Layer& layer) const {
  return layer_attributes(net_, layer, options_.batch);
}

double TraceBuilder::forward_flops(const Layer& layer) const {
  return layer_flops(net_, layer, options_.batch);
}

}  // namespace superneurons
