#include "tests/torch_shapes.h"

#include <fmt/core.h>

#include <utility>

#include "tests/mini_trace.h"

namespace superneurons {
namespace {

void free_after_last_access(Trace& trace) {
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i)
    for (const std::vector<Access>* accesses : {&trace.ops[i].reads, &trace.ops[i].writes})
      for (const Access& access : *accesses) trace[access.tensor].freed_before = OpId{i + 1};
  for (const Carry& carry : trace.carry) trace[carry.end].freed_before.reset();
}

/// Text of a trace whose ops are named "KIND|LAYER|NUMBER": names are unique, so kind and layer are
/// too.
class Text {
 public:
  template <class... Args>
  void tensor(fmt::format_string<Args...> text, Args&&... args) {
    tensors_ += "tensor " + fmt::format(text, std::forward<Args>(args)...) + "\n";
  }
  /// A carried parameter and its momentum.
  void weight(const std::string& name, const std::string& size) {
    tensor("{} {} parameter carry", name, size);
    tensor("{}.m {} optimizer_state carry", name, size);
  }
  template <class... Args>
  void op(const std::string& kind, const std::string& layer, fmt::format_string<Args...> text,
          Args&&... args) {
    ops_ += fmt::format("op {}|{}|{} ", kind, layer, number_++) +
            fmt::format(text, std::forward<Args>(args)...) + "\n";
  }
  /// Momentum and parameter in place, as two multi-tensor ops; then the gradient is dropped.
  void update(const std::string& weight, const std::string& gradient) {
    op("_foreach_add_", "", "update once : {0} {1}.m -> {1}.m @50", gradient, weight);
    op("_foreach_add_", "", "update once : {0}.m {0} -> {0} @50", weight);
  }

  Trace trace() const {
    Trace trace = mini(tensors_ + ops_);
    trace.lowering = "pytorch";
    for (Op& op : trace.ops) {
      const std::size_t first = op.name.find('|'), second = op.name.rfind('|');
      op.kind = "aten::" + op.name.substr(0, first);
      op.layer = op.name.substr(first + 1, second - first - 1);
      if (op.phase == Phase::update) op.launch_group = 0;
      for (const Access& write : op.writes)
        if (trace[write.tensor].layer.empty()) trace[write.tensor].layer = op.layer;
    }
    free_after_last_access(trace);
    return trace;
  }

 private:
  std::string tensors_, ops_;
  int number_ = 0;
};

/// Bottlenecks whose norm is added to and clamped in place: three versions of one storage, of which
/// backward reads the last.
Trace resnet() {
  Text text;
  text.tensor("x0 64K input carry");
  constexpr int kBlocks = 4;
  for (int i = 0; i < kBlocks; ++i) {
    text.weight(fmt::format("w{}", i), "4K");
    text.tensor("count{} 8 buffer carry", i);
    text.tensor("c{} 64K activation", i);
    text.tensor("s{} 1K saved", i);
    text.tensor("x{} 64K activation", i + 1);
  }
  for (int i = 0; i < kBlocks; ++i) {
    const std::string at = fmt::format("layer1.{}", i);
    text.op("convolution", at + ".conv1", "forward : x{0} w{0} -> c{0} @60000 ws=16K", i);
    text.op("add_", at + ".bn1", "forward once : count{0} -> count{0} @20", i);
    text.op("cudnn_batch_norm", at + ".bn1", "forward : c{0} -> x{1} s{0} @9000", i, i + 1);
    text.op("add_", at, "forward : x{1} x{0} -> x{1} @5000", i, i + 1);
    text.op("relu_", at + ".relu", "forward : x{0} -> x{0} @4000", i + 1);
  }
  text.tensor("d{} 64K activation_gradient", kBlocks);
  text.op("mean", "loss", "forward : x{0} -> d{0} @3000", kBlocks);
  for (int i = kBlocks - 1; i >= 0; --i) {
    const std::string at = fmt::format("layer1.{}", i);
    text.tensor("r{} 64K activation_gradient", i);
    text.tensor("b{} 64K activation_gradient", i);
    text.tensor("d{} 64K activation_gradient", i);
    text.tensor("g{} 4K gradient", i);
    text.op("threshold_backward", at + ".relu", "backward : d{1} x{1} -> r{0} @5000", i, i + 1);
    text.op("cudnn_batch_norm_backward", at + ".bn1", "backward : r{0} c{0} s{0} -> b{0} @12000",
            i);
    text.op("convolution_backward", at + ".conv1",
            "backward : b{0} x{0} w{0} -> d{0} g{0} @120000 ws=32K", i);
    text.op("add_", at, "backward : d{0} r{0} -> d{0} @5000", i);
    text.update(fmt::format("w{}", i), fmt::format("g{}", i));
  }
  return text.trace();
}

/// Three micro-batches: gradients are made by the first, added to in place by the others and live
/// until the one update; activations of each go before the next.
Trace micro_batches() {
  Text text;
  constexpr int kParts = 3, kLayers = 4;
  for (int i = 0; i < kLayers; ++i) {
    text.weight(fmt::format("w{}", i), "32K");
    text.tensor("g{} 32K gradient", i);
  }
  for (int part = 0; part < kParts; ++part) {
    const auto name = [&](const char* kind, int i) {
      return fmt::format("{}{}.{}", kind, part, i);
    };
    text.tensor("{} 48K input carry", name("x", 0));
    for (int i = 0; i < kLayers; ++i) {
      const std::string at = fmt::format("blocks.{}", i);
      text.tensor("{} 96K activation", name("h", i));
      text.tensor("{} 48K activation", name("x", i + 1));
      text.op("addmm", at, "forward : {} w{} -> {} @40000", name("x", i), i, name("h", i));
      text.op("gelu", at, "forward : {0} -> {1}[0:24K] @9000", name("h", i), name("x", i + 1));
      text.op("dropout", at, "forward random : {0} {1}[0:24K] -> {1}[24K:48K] @9000", name("h", i),
              name("x", i + 1));
    }
    text.tensor("{} 48K activation_gradient", name("d", kLayers));
    text.op("mse_loss", "", "forward : {} -> {} @2000", name("x", kLayers), name("d", kLayers));
    for (int i = kLayers - 1; i >= 0; --i) {
      const std::string at = fmt::format("blocks.{}", i);
      text.tensor("{} 96K activation_gradient", name("e", i));
      text.tensor("{} 48K activation_gradient", name("d", i));
      text.op("gelu_backward", at, "backward : {} {} -> {} @12000", name("d", i + 1), name("h", i),
              name("e", i));
      text.op("mm", at, "backward : {} w{} -> {} @40000", name("e", i), i, name("d", i));
      if (part == 0) {
        text.op("mm", at, "backward : {} {} -> g{} @40000", name("e", i), name("x", i), i);
        continue;
      }
      text.tensor("{} 32K temporary", name("t", i));
      text.op("mm", at, "backward : {} {} -> {} @40000", name("e", i), name("x", i), name("t", i));
      text.op("add_", at, "backward once : g{0} {1} -> g{0} @2000", i, name("t", i));
    }
  }
  for (int i = 0; i < kLayers; ++i) text.update(fmt::format("w{}", i), fmt::format("g{}", i));
  Trace trace = text.trace();
  int part = 0;
  bool backward = false;
  for (Op& op : trace.ops) {
    if (backward && op.phase == Phase::forward) ++part;
    backward = op.phase == Phase::backward;
    op.micro_batch = part;
  }
  return trace;
}

/// One cell unrolled over time: weights shared by all steps, their gradient added up in place, all
/// gates of a step views of one storage.
Trace lstm() {
  Text text;
  constexpr int kSteps = 24;
  text.weight("w", "32K");
  text.tensor("g 32K gradient");
  text.tensor("h0 8K input carry");
  text.tensor("c0 8K input carry");
  text.tensor("tokens 64K input carry");
  for (int t = 0; t < kSteps; ++t) {
    text.tensor("gates{} 32K activation", t);
    text.tensor("h{} 8K activation", t + 1);
    text.tensor("c{} 8K activation", t + 1);
    text.op("addmm", "lstm.cell", "forward : tokens[{0}:{1}] h{2} w -> gates{2} @20000", t * 2048,
            t * 2048 + 2048, t);
    text.op("sigmoid_", "lstm.cell", "forward : gates{0}[0:24K] -> gates{0}[0:24K] @3000", t);
    text.op("tanh_", "lstm.cell", "forward : gates{0}[24K:32K] -> gates{0}[24K:32K] @1000", t);
    text.op("addcmul", "lstm.cell", "forward : gates{0} c{0} -> c{1} @2000", t, t + 1);
    text.op("mul", "lstm.cell", "forward : gates{0}[16K:24K] c{1} -> h{1} @2000", t, t + 1);
  }
  text.tensor("dh{} 8K activation_gradient", kSteps);
  text.op("nll_loss_forward", "loss", "forward : h{0} -> dh{0} @2000", kSteps);
  for (int t = kSteps - 1; t >= 0; --t) {
    text.tensor("dgates{} 32K activation_gradient", t);
    text.tensor("dh{} 8K activation_gradient", t);
    text.op("mul", "lstm.cell", "backward : dh{1} gates{0} c{1} c{0} -> dgates{0} @6000", t, t + 1);
    text.op("mm", "lstm.cell", "backward : dgates{0} w -> dh{0} @20000", t);
    if (t == kSteps - 1) {
      text.op("mm", "lstm.cell", "backward : dgates{0} h{0} -> g @20000", t);
    } else {
      text.op("addmm_", "lstm.cell", "backward once : g dgates{0} h{0} -> g @20000", t);
    }
  }
  text.update("w", "g");
  return text.trace();
}

/// Blocks of attention and of two products around a residual stream that is a new storage each
/// time; queries, keys and values are views of one.
Trace transformer() {
  Text text;
  constexpr int kBlocks = 3;
  text.tensor("r0 32K input carry");
  for (int i = 0; i < kBlocks; ++i) {
    const std::string at = fmt::format("h.{}", i);
    for (const char* weight : {"qkv", "up", "down"})
      text.weight(fmt::format("{}.{}", weight, i), "16K");
    text.tensor("n{} 32K activation", i);
    text.tensor("q{} 96K activation", i);
    text.tensor("a{} 32K activation", i);
    text.tensor("lse{} 1K saved", i);
    text.tensor("p{} 32K activation", i);
    text.tensor("u{} 128K activation", i);
    text.tensor("v{} 128K activation", i);
    text.tensor("mask{} 32K saved", i);
    text.tensor("o{} 32K activation", i);
    text.tensor("r{} 32K activation", i + 1);
    text.op("native_layer_norm", at + ".ln_1", "forward : r{0} -> n{0} @3000", i);
    text.op("addmm", at + ".attn.qkv", "forward : n{0} qkv.{0} -> q{0} @50000", i);
    text.op("_scaled_dot_product_flash_attention", at + ".attn",
            "forward random : q{0}[0:32K] q{0}[32K:64K] q{0}[64K:96K] -> a{0} lse{0} @60000", i);
    text.op("add", at, "forward : r{0} a{0} -> p{0} @3000", i);
    text.op("addmm", at + ".mlp.up", "forward : p{0} up.{0} -> u{0} @60000", i);
    text.op("gelu", at + ".mlp.act", "forward : u{0} -> v{0} @9000", i);
    text.op("addmm", at + ".mlp.down", "forward : v{0} down.{0} -> o{0} @60000", i);
    text.op("native_dropout", at + ".drop", "forward random : o{0} -> o{0} mask{0} @3000", i);
    text.op("add", at, "forward : p{0} o{0} -> r{1} @3000", i, i + 1);
  }
  text.tensor("dr{} 32K activation_gradient", kBlocks);
  text.op("cross_entropy_loss", "", "forward : r{0} -> dr{0} @4000", kBlocks);
  for (int i = kBlocks - 1; i >= 0; --i) {
    const std::string at = fmt::format("h.{}", i);
    for (const char* gradient : {"do", "dp", "da"})
      text.tensor("{}{} 32K activation_gradient", gradient, i);
    text.tensor("dv{} 128K activation_gradient", i);
    text.tensor("dq{} 96K activation_gradient", i);
    text.tensor("dr{} 32K activation_gradient", i);
    for (const char* gradient : {"g.qkv", "g.up", "g.down"})
      text.tensor("{}.{} 16K gradient", gradient, i);
    text.op("native_dropout_backward", at + ".drop", "backward : dr{1} mask{0} -> do{0} @3000", i,
            i + 1);
    text.op("mm", at + ".mlp.down", "backward : do{0} v{0} -> g.down.{0} @60000", i);
    text.op("mm", at + ".mlp.down", "backward : do{0} down.{0} -> dv{0} @60000", i);
    text.op("gelu_backward", at + ".mlp.act", "backward : dv{0} u{0} -> dv{0} @9000", i);
    text.op("mm", at + ".mlp.up", "backward : dv{0} p{0} -> g.up.{0} @60000", i);
    text.op("mm", at + ".mlp.up", "backward : dv{0} up.{0} -> dp{0} @60000", i);
    text.op("add_", at, "backward : dp{0} dr{1} -> dp{0} @3000", i, i + 1);
    text.op("_scaled_dot_product_flash_attention_backward", at + ".attn",
            "backward : dp{0} q{0} a{0} lse{0} -> dq{0} @90000", i);
    text.op("mm", at + ".attn.qkv", "backward : dq{0} n{0} -> g.qkv.{0} @50000", i);
    text.op("mm", at + ".attn.qkv", "backward : dq{0} qkv.{0} -> da{0} @50000", i);
    text.op("native_layer_norm_backward", at + ".ln_1",
            "backward : da{0} r{0} dp{0} -> dr{0} @4000", i);
    for (const char* weight : {"qkv", "up", "down"})
      text.update(fmt::format("{}.{}", weight, i), fmt::format("g.{}.{}", weight, i));
  }
  return text.trace();
}

}  // namespace

std::vector<TorchShape> torch_shapes() {
  std::vector<TorchShape> shapes;
  shapes.push_back({"resnet", resnet()});
  shapes.push_back({"micro_batches", micro_batches()});
  shapes.push_back({"lstm", lstm()});
  shapes.push_back({"transformer", transformer()});
  return shapes;
}

}  // namespace superneurons
