#include "networks/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "networks/models.h"
#include "networks/route.h"

namespace superneurons {
namespace {

std::string why_not(const Network& net, const LoweringOptions& options = {}) {
  const Result<Trace> trace = lower(net, options);
  if (trace) return "it lowers";
  EXPECT_EQ(trace.error().code, ErrorCode::bad_input);
  return trace.error().message;
}

Network image() { return image_network("test", {3, 8, 8}, 10); }

void end(Network& net, LayerId x) { softmax_cross_entropy(net, linear(net, x, {.features = 10})); }

// Fig. 6 of the paper: a-b, b-c, b-d, c-e, d-f, f-g, f-h, e-i, g-i, h-i, i-j.
TEST(Route, FollowsFigure6) {
  enum : std::uint32_t { a, b, c, d, e, f, g, h, i, j };
  Edges edges(10);
  edges[a] = {b};
  edges[b] = {c, d};
  edges[c] = {e};
  edges[d] = {f};
  edges[f] = {g, h};
  edges[e] = edges[g] = edges[h] = {i};
  edges[i] = {j};
  EXPECT_EQ(route(edges, a), (std::vector<std::uint32_t>{a, b, c, e, d, f, g, h, i, j}));
  EXPECT_EQ(route(reversed(edges), j), (std::vector<std::uint32_t>{j, i, e, c, g, h, f, d, b, a}));
}

TEST(Route, IsLinearAndNeedsNoRecursion) {
  constexpr std::uint32_t kNodes = 300'001;
  Edges chain(kNodes), diamonds(kNodes);
  for (std::uint32_t i = 0; i + 1 < kNodes; ++i) chain[i] = {i + 1};
  for (std::uint32_t i = 0; i + 3 < kNodes; i += 3) {
    diamonds[i] = {i + 2, i + 1};
    diamonds[i + 1] = diamonds[i + 2] = {i + 3};
  }
  const std::vector<std::uint32_t> straight = route(chain, 0);
  ASSERT_EQ(straight.size(), kNodes);
  EXPECT_TRUE(std::is_sorted(straight.begin(), straight.end()));
  std::vector<std::uint32_t> expected = {0};
  for (std::uint32_t i = 0; i + 3 < kNodes; i += 3)
    expected.insert(expected.end(), {i + 2, i + 1, i + 3});
  EXPECT_EQ(route(diamonds, 0), expected);
  EXPECT_EQ(route(reversed(diamonds), kNodes - 1).size(), kNodes);
}

std::vector<std::string> op_names(const Network& net, const LoweringOptions& options) {
  const Result<Trace> trace = lower(net, options);
  EXPECT_TRUE(trace);
  std::vector<std::string> names;
  for (const Op& op : trace->ops)
    if (op.phase != Phase::update && op.kind.starts_with("Relu")) names.push_back(op.name);
  return names;
}

TEST(LayerOrder, IsDeclaredOrTheRouteForEitherLowering) {
  Network net = image();  // declared breadth-first
  const LayerId start = convolution(net, net.data(), {.channels = 4, .kernel = 3}, "conv");
  const LayerId a1 = relu(net, start, "a1");
  const LayerId b1 = relu(net, start, "b1");
  const LayerId a2 = relu(net, a1, "a2");
  const LayerId b2 = relu(net, b1, "b2");
  end(net, add(net, {a2, b2}, "sum"));
  const std::vector<std::string> declared = {"a1.forward",  "b1.forward",  "a2.forward",
                                             "b2.forward",  "b2.backward", "a2.backward",
                                             "b1.backward", "a1.backward"};
  const std::vector<std::string> routed = {"a1.forward",  "a2.forward",  "b1.forward",
                                           "b2.forward",  "a2.backward", "a1.backward",
                                           "b2.backward", "b1.backward"};
  const std::vector<std::string> released = {"b1.forward",  "b2.forward",  "a1.forward",
                                             "a2.forward",  "b2.backward", "b1.backward",
                                             "a2.backward", "a1.backward"};
  for (const Lowering lowering : {Lowering::native, Lowering::paper}) {
    EXPECT_EQ(op_names(net, {.lowering = lowering, .order = LayerOrder::declared}), declared);
    EXPECT_EQ(op_names(net, {.lowering = lowering, .order = LayerOrder::route}), routed);
    EXPECT_EQ(op_names(net, {.lowering = lowering, .order = LayerOrder::release}), released);
  }
  EXPECT_EQ(op_names(net, {.lowering = Lowering::native}), declared);
  EXPECT_EQ(op_names(net, {.lowering = Lowering::paper}), routed);
  const Result<Trace> trace = lower(net, {.batch = 2, .order = LayerOrder::route});
  EXPECT_EQ(trace->name, "test-b2-route");
  EXPECT_EQ(trace->origin, "native lowering of the layer graph, layers in route order");
}

TEST(Network, RefusesLayersThatDoNotFit) {
  const auto with = [](const ConvolutionOptions& options) {
    Network net = image();
    end(net, convolution(net, net.data(), options, "conv"));
    return why_not(net);
  };
  const std::string refusal = "layer conv does not fit its input of 3x8x8";
  EXPECT_EQ(with({.channels = 4, .kernel = 9}), refusal);
  EXPECT_EQ(with({.channels = 0, .kernel = 3}), refusal);
  EXPECT_EQ(with({.channels = 4, .kernel = 0}), refusal);
  EXPECT_EQ(with({.channels = 4, .kernel = 3, .stride = 0}), refusal);
  EXPECT_EQ(with({.channels = 4, .kernel = 3, .pad = -1}), refusal);
  EXPECT_EQ(with({.channels = std::numeric_limits<std::int64_t>::max(), .kernel = 3}), refusal);
  EXPECT_EQ(with({.channels = 4, .kernel = 3, .pad = std::numeric_limits<std::int64_t>::max()}),
            refusal);
  EXPECT_EQ(with({.channels = 4, .kernel = 8}), "it lowers");
  EXPECT_EQ(with({.channels = 4, .kernel = {1, 9}}), refusal);
  EXPECT_EQ(with({.channels = 4, .kernel = {9, 1}}), refusal);
  EXPECT_EQ(with({.channels = 4, .kernel = {0, 3}}), refusal);
  EXPECT_EQ(with({.channels = 4, .kernel = 3, .pad = {0, -1}}), refusal);
  EXPECT_EQ(with({.channels = 4, .kernel = {1, 9}, .pad = {0, 1}}), "it lowers");
}

TEST(Network, RefusesBranchesOfDifferentShapes) {
  Network net = image();
  const LayerId a = convolution(net, net.data(), {.channels = 4, .kernel = 3}, "a");
  const LayerId b = convolution(net, net.data(), {.channels = 5, .kernel = 3}, "b");
  end(net, add(net, {a, b}, "sum"));
  EXPECT_EQ(why_not(net), "layer sum does not fit its input of 4x6x6");
  Network joined = image();
  const LayerId c = convolution(joined, joined.data(), {.channels = 4, .kernel = 3}, "c");
  end(joined, concat(joined, {joined.data(), c}, "both"));
  EXPECT_EQ(why_not(joined), "layer both does not fit its input of 3x8x8");
}

TEST(Network, RefusesGraphsWithoutOneLoss) {
  Network none = image();
  relu(none, none.data());
  EXPECT_EQ(why_not(none), "network test has 0 losses (one softmax_cross_entropy)");
  Network dangling = image();
  relu(dangling, dangling.data(), "unread");
  end(dangling, dangling.data());
  EXPECT_EQ(why_not(dangling), "layer unread is read by no layer");
  Network wrong_classes = image();
  softmax_cross_entropy(wrong_classes, linear(wrong_classes, wrong_classes.data(), {.features = 9}),
                        "loss");
  EXPECT_EQ(why_not(wrong_classes), "layer loss does not fit its input of 9x1x1");
}

TEST(Network, RefusesWrongTables) {
  EXPECT_EQ(why_not(Network{}), "network  has no layers");
  Network forward_reference = image();
  end(forward_reference, relu(forward_reference, {7}, "early"));
  EXPECT_EQ(why_not(forward_reference), "layer early comes before its input (inputs come first)");
  Network twice = image();
  end(twice, relu(twice, relu(twice, twice.data(), "same"), "same"));
  EXPECT_EQ(why_not(twice), "two layers are named same");
  Network no_inputs = image();
  end(no_inputs, add(no_inputs, {}, "empty"));
  EXPECT_EQ(why_not(no_inputs), "layer empty does not fit its input");
  Network edited = image();
  end(edited, relu(edited, edited.data(), "relu"));
  edited.layers[1].shape.channels = 4;
  EXPECT_EQ(why_not(edited), "layer relu has shape 4x8x8 (from its inputs: 3x8x8)");
}

TEST(Network, RefusesBatchesAndSizesThatOverflow) {
  EXPECT_EQ(why_not(alexnet(), {.batch = 0}), "batch 0 (1 to 2^31 - 1)");
  EXPECT_EQ(why_not(alexnet(), {.batch = std::numeric_limits<std::int64_t>::max()}),
            "batch 9223372036854775807 (1 to 2^31 - 1)");
  EXPECT_EQ(why_not(alexnet(), {.batch = 2'000'000'000}),
            "layer data is too large at batch 2000000000 (a tensor may have 2^50 bytes)");
  Network wide = image_network("wide", {1 << 30, 1 << 30, 1 << 30}, 10);
  end(wide, wide.data());
  EXPECT_NE(why_not(wide), "it lowers");
  EXPECT_EQ(why_not(alexnet(), {.rate = std::numeric_limits<double>::quiet_NaN()}),
            "learning rate, momentum or weight decay is nan");
}

TEST(Network, LowersWithoutParameters) {
  Network net = image_network("bare", {10, 1, 1}, 10);
  softmax_cross_entropy(net, net.data());
  for (const Lowering lowering : {Lowering::native, Lowering::paper}) {
    const Result<Trace> trace = lower(net, {.batch = 2, .lowering = lowering});
    ASSERT_TRUE(trace);
    EXPECT_FALSE(find_fault(*trace));
  }
}

TEST(Network, LowersAHundredThousandLayersInOneChain) {
  Network net = image();
  LayerId x = convolution(net, net.data(), {.channels = 4, .kernel = 3});
  for (int i = 0; i < 100'000; ++i) x = relu(net, x);
  end(net, x);
  for (const Lowering lowering : {Lowering::native, Lowering::paper}) {
    const Result<Trace> trace = lower(net, {.batch = 1, .lowering = lowering});
    ASSERT_TRUE(trace);
    EXPECT_GT(trace->ops.size(), 200'000U);
  }
}

TEST(Network, LowersAHundredThousandForksAndJoins) {
  Network net = image();
  LayerId x = convolution(net, net.data(), {.channels = 4, .kernel = 3});
  for (int i = 0; i < 33'333; ++i) {
    const LayerId branch = relu(net, x);
    x = add(net, {relu(net, x), branch});
  }
  end(net, x);
  for (const Lowering lowering : {Lowering::native, Lowering::paper})
    for (const LayerOrder order : {LayerOrder::declared, LayerOrder::route}) {
      const Result<Trace> trace = lower(net, {.batch = 1, .lowering = lowering, .order = order});
      ASSERT_TRUE(trace);
      EXPECT_GT(trace->ops.size(), 150'000U);
    }
}

TEST(Networks, AreFoundByName) {
  for (const NetworkEntry& entry : networks()) {
    const Result<Network> net = find_network(entry.name);
    ASSERT_TRUE(net) << entry.name;
    EXPECT_EQ(net->name, entry.name);
  }
}

TEST(Networks, ResNetsHaveTheDepthsOfTheRelease) {
  const auto depth = [](std::string_view name) {
    const Result<Network> net = find_network(name);
    EXPECT_TRUE(net) << name;
    std::int64_t layers = 0;  // with weights, on the way of the residuals
    for (const Layer& layer : net->layers)
      layers += layer.kind == LayerKind::linear ||
                (layer.kind == LayerKind::convolution && !layer.name.ends_with("/conv0"));
    return layers;
  };
  EXPECT_EQ(depth("resnet50"), 50);
  EXPECT_EQ(depth("resnet256"), 254);
  EXPECT_EQ(depth("resnet512"), 506);
  EXPECT_EQ(depth("resnet1024"), 1010);
  EXPECT_EQ(depth("resnet1922"), 1922);
  EXPECT_EQ(depth("resnet2500"), 2498);
  EXPECT_EQ(depth("resnet:6,32,788,6"), 2498);
}

TEST(Networks, SuggestTheNearestName) {
  const auto message = [](std::string_view name) {
    const Result<Network> net = find_network(name);
    EXPECT_FALSE(net) << name;
    if (net) return std::string();
    EXPECT_EQ(net.error().code, ErrorCode::bad_usage);
    return net.error().message;
  };
  EXPECT_EQ(message("alexnt"), "no network alexnt (did you mean alexnet?)");
  EXPECT_EQ(message("ResNet101"), "no network ResNet101 (did you mean resnet101?)");
  for (const char* wrong : {"resnet:", "resnet:3", "resnet:3,4,6", "resnet:3,4,6,3,",
                            "resnet:3,4,6,0", "resnet:3,4,6,-3", "resnet:a,b,c,d",
                            "resnet:9999999999999999999,1,1,1", "resnet:999999,999999,1,1"})
    EXPECT_NE(message(wrong).find("resnet:n1,n2,n3,n4"), std::string::npos) << wrong;
}

TEST(Estimate, TakesTheSlowerOfArithmeticAndTraffic) {
  Trace trace;
  trace.ops.resize(3);
  trace.ops[0] = {.kind = "Conv2dForward", .choices = {{}}, .flops = 4000};
  trace.ops[0].bytes_moved = 100_B;
  trace.ops[1] = {.kind = "ReluForward", .choices = {{}}, .flops = 10};
  trace.ops[1].bytes_moved = 1000_B;
  trace.ops[2] = {.kind = "LinearForward", .choices = {{.math = "tf32"}}, .flops = 4000};
  DeviceProfile profile;
  profile.name = "profiled";
  profile.device = "a device";
  profile.flops_per_ns = 10;
  profile.tf32_flops_per_ns = 100;
  profile.memory_bytes_per_ns = 5;
  profile.efficiency["Conv2dForward"] = {.flops = 0.5, .bandwidth = 1};
  profile.efficiency[""] = {.flops = 0.8, .bandwidth = 0.4, .floor_ns = 7_ns};
  estimate_durations(trace, profile);
  EXPECT_EQ(trace.ops[0].choices[0].ns, 820_ns) << "arithmetic and traffic";
  EXPECT_EQ(trace.ops[1].choices[0].ns, 507_ns) << "traffic alone";
  EXPECT_EQ(trace.ops[2].choices[0].ns, 57_ns);
  EXPECT_EQ(trace.capability(Fact::durations), Capability::inferred);
  EXPECT_EQ(trace.device, "");  // measured on none
  EXPECT_EQ(trace.origin, "cost model of profiled, a device");
}

TEST(Estimate, GivesEveryOpATimeOnAnyProfile) {
  Result<Trace> trace = lower(small_cnn(), {.batch = 4});
  ASSERT_TRUE(trace);
  estimate_durations(*trace, DeviceProfile{});
  for (const Op& op : trace->ops) EXPECT_EQ(op.choices[0].ns, 1_ns);
  DeviceProfile slow;
  slow.flops_per_ns = slow.memory_bytes_per_ns = std::numeric_limits<double>::denorm_min();
  estimate_durations(*trace, slow);
  EXPECT_FALSE(find_fault(*trace));
}

}  // namespace
}  // namespace superneurons
