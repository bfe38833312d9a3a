#include "tests/random_trace.h"

#include <algorithm>
#include <map>
#include <optional>

namespace superneurons {

std::uint64_t TestRandom::next() {
  std::uint64_t x = state += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint32_t TestRandom::below(std::size_t count) {
  return count == 0 ? 0 : static_cast<std::uint32_t>(next() % count);
}

namespace {

enum class Gradients { temporary, zeroed, applied_first, dropped };

struct Layer {
  std::string name;
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;
  std::vector<TensorId> saved;
  std::optional<std::size_t> parameter;
};

struct Parameter {
  TensorId weight;
  TensorId gradient;
  std::optional<TensorId> old_gradient;  // where gradients are new storages
  std::optional<TensorId> momentum;
  bool has_gradient = false;  // some op of this step wrote it
};

class Maker {
 public:
  Maker(std::uint64_t seed, const RandomTraceOptions& options)
      : random_{seed}, options_(options), style_(static_cast<Gradients>(random_.below(4))) {
    trace_.name = "random-" + std::to_string(seed);
    trace_.origin = "random_trace";
    trace_.lowering = "random";
    trace_.capabilities.fill(Capability::exact);
    trace_.capabilities[static_cast<std::size_t>(Fact::kernels)] = Capability::none;
    trace_.capabilities[static_cast<std::size_t>(Fact::native)] = Capability::none;
  }

  Trace make() && {
    const int inputs = 1 + static_cast<int>(random_.below(2));
    for (int i = 0; i < inputs; ++i)
      live_.push_back(carried(tensor("input" + std::to_string(i), Role::input)));
    const auto parameters = 1 + random_.below(static_cast<std::size_t>(options_.layers));
    for (std::uint32_t i = 0; i < parameters; ++i) add_parameter(i);
    before_forward();
    for (int i = 0; i < options_.layers; ++i) forward(i);
    loss();
    for (std::size_t i = layers_.size(); i-- > 0;) backward(layers_[i]);
    after_backward();
    add_frees();
    return std::move(trace_);
  }

 private:
  // ---- tensors ----

  TensorId tensor(const std::string& name, Role role, Bytes bytes = {}) {
    Tensor made;
    made.name = name;
    made.role = role;
    made.dtype = "u8";
    if (bytes.count == 0)
      bytes = {4 + random_.below(static_cast<std::size_t>(options_.largest.count - 3))};
    made.bytes = bytes;
    made.shape = {bytes.count};
    made.layer = layer_;
    trace_.tensors.push_back(made);
    return {static_cast<std::uint32_t>(trace_.tensors.size() - 1)};
  }

  TensorId carried(TensorId id) {
    trace_.carry.push_back({id, id});
    return id;
  }

  void add_parameter(std::uint32_t index) {
    const std::string name = "w" + std::to_string(index);
    Parameter made;
    made.weight = carried(tensor(name, Role::parameter));
    const Bytes bytes = trace_[made.weight].bytes;
    made.gradient = tensor(name + ".grad", Role::gradient, bytes);
    if (style_ == Gradients::zeroed) carried(made.gradient);
    if (style_ == Gradients::applied_first || style_ == Gradients::dropped) {
      made.old_gradient = tensor(name + ".old_grad", Role::gradient, bytes);
      trace_.carry.push_back({made.gradient, *made.old_gradient});
    }
    if (random_.chance(50))
      made.momentum = carried(tensor(name + ".momentum", Role::optimizer_state, bytes));
    parameters_.push_back(made);
  }

  // ---- ops ----

  Access whole(TensorId id) const { return {id, {}, trace_[id].bytes}; }

  /// Mostly the whole tensor, sometimes a part.
  Access some(TensorId id, int percent = 15) {
    Access access = whole(id);
    if (!random_.chance(percent)) return access;
    access.offset = {random_.below(static_cast<std::size_t>(access.length.count))};
    access.length = {
        1 + random_.below(static_cast<std::size_t>((access.length - access.offset).count))};
    return access;
  }

  Op& op(const std::string& name, Phase phase, std::vector<Access> reads,
         std::vector<Access> writes) {
    Op made;
    made.name = name;
    made.kind = name.substr(name.rfind('.') + 1);
    made.phase = phase;
    made.layer = layer_;
    made.reads = std::move(reads);
    made.writes = std::move(writes);
    made.host_ns = {random_.below(50)};
    made.flops = random_.below(10000);
    const std::uint32_t choices = random_.chance(30) ? 2 + random_.below(2) : 1;
    for (std::uint32_t i = 0; i < choices; ++i) {
      Choice choice;
      if (choices > 1) choice.algorithm = "algorithm" + std::to_string(i);
      if (random_.chance(30))
        choice.workspace = {random_.below(static_cast<std::size_t>(options_.largest.count))};
      choice.ns = {1 + random_.below(1000)};
      made.choices.push_back(choice);
    }
    made.recorded = random_.below(choices);
    trace_.ops.push_back(made);
    return trace_.ops.back();
  }

  // ---- before forward ----

  void before_forward() {
    if (random_.chance(30)) {
      const TensorId counter = carried(tensor("counter", Role::buffer, 8_B));
      op("counter.tick", Phase::other, {whole(counter)}, {whole(counter)}).rerunnable = false;
    }
    for (Parameter& parameter : parameters_) {
      const std::string& name = trace_[parameter.weight].name;
      if (style_ == Gradients::applied_first) update(parameter, *parameter.old_gradient);
      if (style_ != Gradients::zeroed) continue;
      op(name + ".zero", Phase::other, {}, {whole(parameter.gradient)});
      parameter.has_gradient = true;
    }
  }

  void update(const Parameter& parameter, TensorId gradient) {
    std::vector<Access> reads = {whole(parameter.weight), whole(gradient)};
    std::vector<Access> writes = {whole(parameter.weight)};
    if (parameter.momentum) {
      reads.push_back(whole(*parameter.momentum));
      writes.push_back(whole(*parameter.momentum));
    }
    Op& made = op(trace_[parameter.weight].name + ".update", Phase::update, reads, writes);
    made.rerunnable = false;
    made.launch_group = 0;
  }

  // ---- forward ----

  TensorId pick() { return random_.chance(70) ? live_.back() : live_[random_.below(live_.size())]; }

  void forward(int index) {
    layer_ = "layer" + std::to_string(index);
    Layer layer{layer_, {pick()}, {}, {}, {}};
    const std::uint32_t kind = random_.below(9);
    if (kind <= 2) weighted(layer);
    if (kind == 3) in_place(layer);
    if (kind == 4) dropout(layer);
    if (kind == 5) join(layer);
    if (kind == 6) concat(layer);
    if (kind == 7) split(layer);
    if (kind == 8) slice(layer);
    live_.insert(live_.end(), layer.outputs.begin(), layer.outputs.end());
    layers_.push_back(layer);
  }

  TensorId activation(const std::string& suffix = ".out") {
    return tensor(layer_ + suffix, Role::activation);
  }

  /// A convolution or a normalisation; the latter moves running statistics.
  void weighted(Layer& layer) {
    layer.parameter = random_.below(parameters_.size());
    layer.outputs = {activation()};
    std::vector<Access> reads = {some(layer.inputs[0]),
                                 whole(parameters_[*layer.parameter].weight)};
    std::vector<Access> writes = {whole(layer.outputs[0])};
    std::vector<TensorId> once;
    const bool saves = random_.chance(50);
    const TensorId saved = saves ? tensor(layer_ + ".saved", Role::saved) : TensorId{};
    if (saves) writes.push_back(whole(saved));
    if (random_.chance(40)) {
      once = {carried(tensor(layer_ + ".running", Role::buffer))};
      if (random_.chance(80)) reads.push_back(whole(once[0]));
      writes.push_back(whole(once[0]));
    }
    Op& made = op(layer_ + ".forward", Phase::forward, reads, writes);
    made.once = once;
    if (!saves) return;
    // Sometimes backward reads what a choice omits: then that choice must not be taken.
    const bool may_omit = made.choices.size() > 1;
    if (may_omit) made.choices[(made.recorded + 1) % made.choices.size()].omits = {saved};
    if (!may_omit || random_.chance(30)) layer.saved = {saved};
  }

  void in_place(Layer& layer) {
    const TensorId x = layer.inputs[0];
    layer.outputs = {x};
    const Access part = some(x);
    op(layer_ + ".forward", Phase::forward, {part}, {part});
  }

  void dropout(Layer& layer) {
    const TensorId mask = tensor(layer_ + ".mask", Role::saved);
    layer.outputs = {random_.chance(50) ? layer.inputs[0] : activation()};
    layer.saved = {mask};
    Op& made = op(layer_ + ".forward", Phase::forward, {whole(layer.inputs[0])},
                  {whole(layer.outputs[0]), whole(mask)});
    made.random = true;
    made.rerunnable = !random_.chance(20);
  }

  /// Adds two activations, half the time on top of one of them.
  void join(Layer& layer) {
    layer.inputs.push_back(live_[random_.below(live_.size())]);
    layer.outputs = {random_.chance(50) ? layer.inputs[1] : activation()};
    op(layer_ + ".forward", Phase::forward, {some(layer.inputs[0]), whole(layer.inputs[1])},
       {whole(layer.outputs[0])});
  }

  /// Fills an output in two parts, sometimes in three with one of them written over.
  void concat(Layer& layer) {
    layer.inputs.push_back(live_[random_.below(live_.size())]);
    layer.outputs = {activation()};
    const Access all = whole(layer.outputs[0]);
    const Bytes cut{1 + random_.below(static_cast<std::size_t>(all.length.count - 1))};
    op(layer_ + ".left", Phase::forward, {some(layer.inputs[0])}, {{all.tensor, {}, cut}});
    op(layer_ + ".right", Phase::forward, {some(layer.inputs[1])},
       {{all.tensor, cut, all.length - cut}});
    if (!random_.chance(30)) return;
    const Access from = some(layer.inputs[1]);  // apart: arguments are evaluated in any order
    const Access to = some(all.tensor, 100);
    op(layer_ + ".again", Phase::forward, {from}, {to});
  }

  void split(Layer& layer) {
    layer.outputs = {activation(".first"), activation(".second")};
    op(layer_ + ".forward", Phase::forward, {whole(layer.inputs[0])},
       {whole(layer.outputs[0]), whole(layer.outputs[1])});
  }

  /// Reads a part and fills only a part: the rest of the output is never written.
  void slice(Layer& layer) {
    layer.outputs = {activation()};
    const Access from = some(layer.inputs[0], 100);
    const Access to = some(layer.outputs[0], 60);
    op(layer_ + ".forward", Phase::forward, {from}, {to});
  }

  // ---- backward ----

  void loss() {
    layer_ = "loss";
    const TensorId out = live_.back();
    const TensorId value = tensor("loss", Role::activation, 4_B);
    op("loss.forward", Phase::forward, {whole(out)}, {whole(value)});
    op("loss.backward", Phase::backward, {whole(value), whole(out)},
       {whole(gradient_of(out).first)});
  }

  /// The gradient of an activation, and whether an op wrote it before.
  std::pair<TensorId, bool> gradient_of(TensorId activation) {
    const auto found = gradients_.find(activation.index);
    if (found != gradients_.end()) return {found->second, true};
    const TensorId made = tensor(trace_[activation].name + ".grad", Role::activation_gradient,
                                 trace_[activation].bytes);
    gradients_[activation.index] = made;
    return {made, false};
  }

  void backward(const Layer& layer) {
    layer_ = layer.name;
    std::vector<Access> reads;
    for (const TensorId output : layer.outputs)
      if (const auto found = gradients_.find(output.index); found != gradients_.end())
        reads.push_back(whole(found->second));
    for (const TensorId saved : layer.saved) reads.push_back(whole(saved));
    if (random_.chance(50)) reads.push_back(some(layer.inputs[0]));
    if (random_.chance(30)) reads.push_back(some(layer.outputs[0]));
    if (layer.parameter) weight_gradient(layer, reads);
    std::vector<Access> writes;
    for (const TensorId input : layer.inputs) {
      const auto [gradient, exists] = gradient_of(input);
      const Access part = exists ? some(gradient) : whole(gradient);
      const auto same = [&](const Access& write) { return write.tensor == part.tensor; };
      if (std::any_of(writes.begin(), writes.end(), same)) continue;
      if (exists) reads.push_back(part);  // accumulates
      writes.push_back(part);
    }
    Op& made = op(layer_ + ".backward", Phase::backward, reads, writes);
    made.rerunnable = !random_.chance(10);
  }

  void weight_gradient(const Layer& layer, std::vector<Access> reads) {
    Parameter& parameter = parameters_[*layer.parameter];
    if (random_.chance(50)) reads.push_back(whole(parameter.weight));
    if (parameter.has_gradient) reads.push_back(whole(parameter.gradient));
    parameter.has_gradient = true;
    op(layer_ + ".weight_backward", Phase::backward, reads, {whole(parameter.gradient)});
  }

  void after_backward() {
    layer_ = "";
    for (Parameter& parameter : parameters_) {
      const std::string& name = trace_[parameter.weight].name;
      if (!parameter.has_gradient)
        op(name + ".fill", Phase::other, {}, {whole(parameter.gradient)});
      if (style_ != Gradients::applied_first) update(parameter, parameter.gradient);
    }
  }

  /// When the program gave storages back: some time after their last use, some never.
  void add_frees() {
    const auto count = static_cast<std::uint32_t>(trace_.ops.size());
    std::vector<std::uint32_t> first_write(trace_.tensors.size(), count);
    std::vector<std::uint32_t> after(trace_.tensors.size(), count);
    for (std::uint32_t i = 0; i < count; ++i) {
      for (const Access& access : trace_.ops[i].reads) after[access.tensor.index] = i + 1;
      for (const Access& access : trace_.ops[i].writes) {
        after[access.tensor.index] = i + 1;
        first_write[access.tensor.index] = std::min(first_write[access.tensor.index], i);
      }
    }
    std::vector<bool> stays(trace_.tensors.size(), false);
    for (const Carry& carry : trace_.carry) stays[carry.end.index] = true;
    for (std::uint32_t i = 0; i < trace_.tensors.size(); ++i)
      if (!stays[i] && random_.chance(90))
        trace_.tensors[i].freed_before = OpId{std::min(count, after[i] + random_.below(3))};
    for (const Carry& carry : trace_.carry)
      if (carry.start != carry.end)
        trace_[carry.start].freed_before = OpId{first_write[carry.end.index]};
  }

  TestRandom random_;
  RandomTraceOptions options_;
  Gradients style_;
  Trace trace_;
  std::string layer_;
  std::vector<TensorId> live_;  // activations that a later layer may read
  std::vector<Layer> layers_;
  std::vector<Parameter> parameters_;
  std::map<std::uint32_t, TensorId> gradients_;  // by activation
};

}  // namespace

Trace random_trace(std::uint64_t seed, const RandomTraceOptions& options) {
  return Maker(seed, options).make();
}

}  // namespace superneurons
