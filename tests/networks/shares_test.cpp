// What each kind of layer takes of a trace.
#include "networks/shares.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "networks/models.h"

namespace superneurons {
namespace {

Trace lowered(const Network& net, std::int64_t batch, Lowering lowering) {
  return *lower(net, {.batch = batch, .lowering = lowering});
}

LayerShare of(const std::vector<LayerShare>& shares, std::string_view kind) {
  const auto found = std::find_if(shares.begin(), shares.end(),
                                  [&](const LayerShare& share) { return share.kind == kind; });
  EXPECT_NE(found, shares.end()) << kind;
  return found == shares.end() ? LayerShare{} : *found;
}

TEST(Shares, AreThoseOfAlexNet) {
  const std::vector<LayerShare> shares = layer_shares(lowered(alexnet(), 200, Lowering::paper));
  const LayerShare conv = of(shares, "CONV");
  EXPECT_EQ(conv.layers, 5);
  EXPECT_EQ(conv.ops, 5 + 5 + 2 * 5);  // forward, fused backward, updates of weight and bias
  const std::int64_t out = 96 * 55 * 55 + 256 * 27 * 27 + (384 + 384 + 256) * 13 * 13;
  EXPECT_EQ(conv.activations.count, 4 * 200 * out);
  EXPECT_EQ(of(shares, "ACT").activations.count, 4 * 200 * (out + 2 * 4096));
  EXPECT_EQ(of(shares, "ACT").gradients.count, 0);  // in place
  const std::int64_t weights = 96 * 3 * 121 + 256 * 96 * 25 + 384 * 256 * 9 + 384 * 384 * 9 +
                               256 * 384 * 9 + 96 + 256 + 384 + 384 + 256;
  EXPECT_EQ(conv.parameters.count, 4 * weights);
  EXPECT_EQ(of(shares, "FC").parameters.count, 4 * (62'378'344 - weights));
  EXPECT_EQ(of(shares, "DROPOUT").saved.count, 200 * 2 * 4096);
  EXPECT_EQ(of(shares, "LRN").layers, 2);
  EXPECT_EQ(of(shares, "POOL").layers, 3);
}

TEST(Shares, CoverAllTimeAndAllTensorsOfTheScope) {
  for (const Lowering lowering : {Lowering::native, Lowering::paper}) {
    Trace trace = lowered(small_cnn(), 4, lowering);
    Nanoseconds time{}, found{};
    Bytes scope{}, counted{};
    std::int64_t ns = 1;
    for (Op& op : trace.ops) time += op.choices[0].ns = {ns++};
    for (const Tensor& tensor : trace.tensors)
      if (tensor.role == Role::activation || tensor.role == Role::activation_gradient)
        scope += tensor.bytes;
    for (const LayerShare& share : layer_shares(trace)) {
      found += share.time() + share.update;
      counted += share.memory();
    }
    EXPECT_EQ(found, time);
    EXPECT_EQ(counted, scope);
  }
}

TEST(Shares, NameForksAndJoinsAndLeaveOtherKindsAlone) {
  const std::vector<LayerShare> paper = layer_shares(lowered(small_cnn(), 2, Lowering::paper));
  EXPECT_GT(of(paper, "FORK").activations, 0_B);
  EXPECT_GT(of(paper, "JOIN").gradients, 0_B);
  EXPECT_EQ(of(paper, "CONCAT").layers, 1);
  Trace other;
  other.ops.resize(1);
  other.ops[0].kind = "aten::mm";
  EXPECT_EQ(layer_shares(other)[0].kind, "aten::mm");
}

}  // namespace
}  // namespace superneurons
