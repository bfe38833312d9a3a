#include "networks/costs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "networks/network.h"

namespace superneurons {
namespace {

Trace lowered(const Network& net, std::int64_t batch, bool tf32 = false) {
  Result<Trace> trace = lower(net, {.batch = batch, .tf32 = tf32});
  EXPECT_TRUE(trace) << (trace ? "" : trace.error().message);
  return trace ? *std::move(trace) : Trace{};
}

/// The trace as if recorded: op i takes 1000 + i ns, and convolutions can be done in two ways.
Trace recorded(const Network& net, std::int64_t batch, bool tf32 = false) {
  Trace trace = lowered(net, batch, tf32);
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    Op& op = trace.ops[i];
    op.host_ns = {static_cast<std::int64_t>(10 * i)};
    op.kernels = {{"kernel of " + op.name, {1000}}};
    op.choices[0].ns = {static_cast<std::int64_t>(1000 + i)};
    if (op.kind != "Conv2dForward") continue;
    Choice large = op.choices[0];
    large.algorithm = "large";
    large.workspace = {4096};
    large.ns = {500};
    op.choices.push_back(large);
    op.recorded = 1;
  }
  trace.device = "Toy";
  trace.origin = "recorded by hand";
  for (const Fact fact : {Fact::durations, Fact::workspaces, Fact::choices, Fact::kernels})
    trace.capabilities[static_cast<std::size_t>(fact)] = Capability::exact;
  return trace;
}

const Op& op_named(const Trace& trace, std::string_view name) {
  const auto found = std::find_if(trace.ops.begin(), trace.ops.end(),
                                  [&](const Op& op) { return op.name == name; });
  EXPECT_NE(found, trace.ops.end()) << name;
  return found == trace.ops.end() ? trace.ops.front() : *found;
}

TEST(CopiedCosts, OfTheSameNetworkAreThoseOfTheTrace) {
  const Network net = resnet(1, 1, 1, 1);
  const Trace source = recorded(net, 4);
  Trace trace = lowered(net, 4);
  const auto copied = copy_costs(trace, {&source, 1});
  ASSERT_TRUE(copied) << copied.error().message;
  EXPECT_EQ(copied->matched, trace.ops.size());
  EXPECT_EQ(trace.device, "Toy");
  EXPECT_EQ(trace.capability(Fact::durations), Capability::exact);
  EXPECT_EQ(trace.capability(Fact::host_times), Capability::none) << "the source has none";
  EXPECT_NE(trace.origin.find(std::to_string(trace.ops.size())), std::string::npos);
  const Op& op = op_named(trace, "conv1.forward");
  ASSERT_EQ(op.choices.size(), 2u);
  EXPECT_EQ(op.recorded, 1u);
  EXPECT_EQ(op.choices[1].algorithm, "large");
  EXPECT_EQ(op.choices[1].workspace, 4096_B);
  EXPECT_EQ(op.choices[1].ns, 500_ns);
  EXPECT_EQ(op.kernels.at(0).name, "kernel of conv1.forward");
}

TEST(CopiedCosts, OfADeepNetworkComeFromAShallowSibling) {
  const Trace source = recorded(resnet(2, 2, 3, 2), 2);
  Trace deep = lowered(resnet(2, 2, 40, 2), 2);
  const auto copied = copy_costs(deep, {&source, 1});
  ASSERT_TRUE(copied) << copied.error().message;
  EXPECT_EQ(copied->matched, deep.ops.size());
  EXPECT_EQ(find_fault(deep).has_value(), false);
  std::set<std::int64_t> known;
  for (const Op& op : source.ops)
    for (const Choice& choice : op.choices) known.insert(choice.ns.count);
  for (const Op& op : deep.ops) EXPECT_TRUE(known.count(op.choices[op.recorded].ns.count));
}

TEST(CopiedCosts, AreMediansOfOpsThatDoTheSame) {
  Network net = image_network("three", {4, 8, 8}, 4);
  LayerId x = net.data();
  for (int i = 0; i < 3; ++i) x = convolution(net, x, {.channels = 4, .kernel = 3, .pad = 1});
  softmax_cross_entropy(net, linear(net, x, {.features = 4}));
  Trace source = recorded(net, 2);
  const std::int64_t times[] = {900, 100, 300};
  std::size_t next = 0;
  for (Op& op : source.ops)
    if (op.kind == "Conv2dForward") {
      op.host_ns = {7 * times[next]};
      op.choices[1].ns = {times[next++]};
    }
  Trace trace = lowered(net, 2);
  ASSERT_TRUE(copy_costs(trace, {&source, 1}));
  for (const Op& op : trace.ops) {
    if (op.kind != "Conv2dForward") continue;
    EXPECT_EQ(op.choices[op.recorded].ns, 300_ns);
    EXPECT_EQ(op.host_ns, 2100_ns);
    EXPECT_EQ(op.kernels.at(0).name, "kernel of conv3.forward") << "the median's";
  }
}

TEST(CopiedCosts, OmittedOutputsAreTheOpsOwn) {
  Trace source = recorded(resnet(1, 1, 1, 1), 2);
  const auto choose_omission = [](Trace& trace) {
    for (Op& op : trace.ops)
      if (op.kind == "BatchNormForward") op.choices[0].omits = {op.writes[1].tensor};
  };
  choose_omission(source);
  Trace trace = lowered(resnet(1, 2, 1, 1), 2);
  ASSERT_TRUE(copy_costs(trace, {&source, 1}));
  int omissions = 0;
  for (const Op& op : trace.ops)
    for (const Choice& choice : op.choices)
      for (const TensorId omitted : choice.omits) {
        EXPECT_EQ(omitted, op.writes[1].tensor) << op.name;
        ++omissions;
      }
  EXPECT_GT(omissions, 0);
  EXPECT_FALSE(find_fault(trace));
}

TEST(CopiedCosts, ThatAreMissingStayEstimatedAndAreCounted) {
  const Trace source = recorded(resnet(1, 1, 1, 1), 2);
  Network wider = image_network("wider", {3, 227, 227}, 1000);
  LayerId x = convolution(wider, wider.data(),
                          {.channels = 64, .kernel = 7, .stride = 2, .pad = 3, .bias = false});
  x = convolution(wider, x, {.channels = 5, .kernel = 9, .stride = 3, .bias = false});
  softmax_cross_entropy(wider, linear(wider, x, {.features = 1000}));
  Trace trace = lowered(wider, 2);
  for (Op& op : trace.ops) op.choices[0].ns = {77};
  trace.origin = "an estimate";
  const auto copied = copy_costs(trace, {&source, 1});
  ASSERT_TRUE(copied) << copied.error().message;
  EXPECT_GT(copied->matched, 0u);
  EXPECT_LT(copied->matched, copied->of);
  EXPECT_EQ(trace.capability(Fact::durations), Capability::inferred);
  EXPECT_NE(trace.origin.find("an estimate"), std::string::npos);
  EXPECT_EQ(op_named(trace, "conv1.forward").choices[0].algorithm, "");
  EXPECT_EQ(op_named(trace, "conv2.forward").choices[0].ns, 77_ns);
}

TEST(CopiedCosts, DifferByBatchAndArithmeticButNotByLearningRate) {
  const Network net = resnet(1, 1, 1, 1);
  const Trace source = recorded(net, 2);
  Trace other_batch = lowered(net, 3);
  EXPECT_TRUE(std::none_of(other_batch.ops.begin(), other_batch.ops.end(), [&](const Op& op) {
    return op.kind == "Conv2dForward" &&
           cost_signature(other_batch, op) == cost_signature(source, source.ops[0]);
  }));
  Trace tf32 = lowered(net, 2, true);
  const auto copied = copy_costs(tf32, {&source, 1});
  ASSERT_TRUE(copied);
  EXPECT_LT(copied->matched, tf32.ops.size());
  EXPECT_EQ(op_named(tf32, "conv1.forward").choices.size(), 1u);
  EXPECT_EQ(op_named(tf32, "bn1.forward").choices[0].ns,
            op_named(source, "bn1.forward").choices[0].ns);

  Result<Trace> faster = lower(net, {.batch = 2, .rate = 0.5, .momentum = 0.1});
  ASSERT_TRUE(faster);
  const auto all = copy_costs(*faster, {&source, 1});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->matched, all->of);
}

TEST(CopiedCosts, AreRefusedOfTracesThatHaveNone) {
  const Network net = resnet(1, 1, 1, 1);
  const auto message = [&](std::vector<Trace> sources) {
    Trace trace = lowered(net, 2);
    const auto copied = copy_costs(trace, sources);
    return copied ? std::string() : copied.error().message;
  };
  const Trace good = recorded(net, 2);
  EXPECT_EQ(message({good}), "");
  Trace estimated = good;
  estimated.device.clear();
  EXPECT_NE(message({good, estimated}).find("no device"), std::string::npos);
  Trace other = good;
  other.device = "Other";
  EXPECT_NE(message({good, other}).find("one device only"), std::string::npos);
  Trace foreign = good;
  foreign.capabilities[static_cast<std::size_t>(Fact::native)] = Capability::none;
  EXPECT_NE(message({foreign}).find("not of a built-in network"), std::string::npos);
  Trace other_batch = recorded(net, 7);
  other_batch.ops.resize(1);
  EXPECT_NE(message({other_batch}).find("no op of"), std::string::npos);
}

}  // namespace
}  // namespace superneurons
