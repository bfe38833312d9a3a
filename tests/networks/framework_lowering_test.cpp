// Lowerings that model other frameworks: which tensors each makes, shares and holds.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/dataflow.h"
#include "networks/lowering_style.h"
#include "networks/models.h"
#include "networks/network.h"
#include "tests/networks/random_network.h"

namespace superneurons {
namespace {

Trace lowered(const Network& net, Lowering lowering) {
  Result<Trace> trace = lower(net, {.batch = 2, .lowering = lowering});
  EXPECT_TRUE(trace) << net.name << ": " << (trace ? "" : trace.error().message);
  return trace ? *std::move(trace) : Trace{};
}

std::string operands(const Trace& trace, std::string_view name) {
  for (const Op& op : trace.ops) {
    if (op.name != name) continue;
    std::string text;
    for (const Access& read : op.reads) text += trace[read.tensor].name + " ";
    text += "->";
    for (const Access& write : op.writes) text += " " + trace[write.tensor].name;
    return text;
  }
  return "";
}

/// A residual block with a dropout, all that the frameworks do differently.
Network block() {
  Network net = image_network("block", {4, 8, 8}, 10);
  const LayerId stem = convolution(net, net.data(), {.channels = 4, .kernel = 3}, "stem");
  const LayerId conv = convolution(net, stem, {.channels = 4, .kernel = 3, .pad = 1}, "conv");
  const LayerId norm = batch_norm(net, conv, "bn");
  const LayerId sum = relu(net, add(net, {norm, stem}, "add"), "relu");
  softmax_cross_entropy(net, linear(net, dropout(net, sum, 0.5, "drop"), {.features = 10}, "fc"));
  return net;
}

TEST(FrameworkLowering, EveryTraceIsSound) {
  for (const LoweringEntry& entry : lowerings()) {
    std::vector<Network> nets = {alexnet(), resnet(3, 4, 6, 3), small_cnn(), block()};
    for (std::uint64_t seed = 0; seed < 60; ++seed) nets.push_back(random_network(seed));
    for (const Network& net : nets) {
      const Trace trace = lowered(net, entry.lowering);
      const auto fault = find_fault(trace);
      ASSERT_FALSE(fault) << trace.name << ": " << fault->message;
      EXPECT_EQ(trace.lowering, entry.name);
      const Dataflow flow = analyze(trace);
      for (std::size_t i = 0; i < trace.ops.size(); ++i)
        for (const Value& value : flow.ops[i].needs)
          EXPECT_TRUE(value.version > 0 || flow[value.tensor].alive_at_start)
              << entry.name << ": " << trace.ops[i].name << " reads " << trace[value.tensor].name
              << " before it is made";
    }
  }
}

TEST(FrameworkLowering, CaffeHasAGradientPerUseAndDropsOutInPlace) {
  const Trace trace = lowered(block(), Lowering::caffe);
  EXPECT_EQ(operands(trace, "add.forward"), "bn.out stem.out -> add.out");
  EXPECT_EQ(operands(trace, "relu.forward"), "add.out -> add.out");
  EXPECT_EQ(operands(trace, "drop.forward"), "add.out -> add.out drop.mask");
  EXPECT_EQ(operands(trace, "drop.backward"), "drop.out.grad drop.mask -> drop.out.grad");
  EXPECT_EQ(operands(trace, "add.backward"), "drop.out.grad -> bn.out.grad stem.out.grad");
  EXPECT_EQ(operands(trace, "stem.accumulate1"),
            "stem.out.grad stem.out.grad.2 -> stem.out.grad.3");
}

TEST(FrameworkLowering, TorchAddsInPlaceAndSumsBranchesInATensorOfTheirOwn) {
  const Trace trace = lowered(block(), Lowering::torch);
  EXPECT_EQ(operands(trace, "add.forward"), "bn.out stem.out -> bn.out");
  EXPECT_EQ(operands(trace, "add.backward"), "");  // shared
  EXPECT_EQ(operands(trace, "drop.forward"), "bn.out -> drop.out drop.mask");
  EXPECT_EQ(operands(trace, "stem.accumulate1"), "relu.out.grad stem.out.grad -> stem.out.grad.2");
}

TEST(FrameworkLowering, MxnetKeepsWhatReluReads) {
  const Trace trace = lowered(block(), Lowering::mxnet);
  EXPECT_EQ(operands(trace, "relu.forward"), "bn.out -> relu.out");
  EXPECT_EQ(operands(trace, "relu.backward"), "relu.out relu.out.grad bn.out -> relu.out.grad");
  EXPECT_EQ(operands(trace, "add.backward"), "relu.out.grad -> stem.out.grad");  // bn's is shared
}

TEST(FrameworkLowering, TensorflowUpdatesAtOnceAndMakesTheInputsGradientFirst) {
  const Trace trace = lowered(block(), Lowering::tensorflow);
  const auto at = [&](std::string_view name) {
    return std::find_if(trace.ops.begin(), trace.ops.end(),
                        [&](const Op& op) { return op.name == name; }) -
           trace.ops.begin();
  };
  EXPECT_LT(at("conv.backward_data"), at("conv.backward_filter"));
  EXPECT_LT(at("conv.backward_filter"), at("conv.weight.update"));
  EXPECT_LT(at("conv.weight.update"), at("stem.backward_filter"));
}

TEST(FrameworkLowering, HoldsGradientsOfParametersWhereTheFrameworkDoes) {
  for (const LoweringEntry& entry : lowerings()) {
    const Trace trace = lowered(block(), entry.lowering);
    const Dataflow flow = analyze(trace);
    for (std::uint32_t i = 0; i < trace.tensors.size(); ++i)
      if (trace.tensors[i].role == Role::gradient) {
        EXPECT_EQ(flow.tensors[i].alive_at_start, style_of(entry.lowering).held_gradients)
            << entry.name;
        EXPECT_FALSE(flow.tensors[i].needed_at_start);
      }
  }
}

TEST(FrameworkLowering, IsFoundByName) {
  for (const LoweringEntry& entry : lowerings())
    EXPECT_EQ(*find_lowering(entry.name), entry.lowering);
  const Result<Lowering> none = find_lowering("chainer");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            "no lowering chainer (there are native, paper, caffe, torch, mxnet, tensorflow)");
}

}  // namespace
}  // namespace superneurons
