// Models of frameworks: which traces they plan, and that they rank as the frameworks did.
#include <gtest/gtest.h>

#include "ir/check.h"
#include "memory/placement.h"
#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

Result<Plan> plan_of(const ModelEntry& model, const std::string& network, std::int64_t batch) {
  const Trace trace = network_trace(network, *find_lowering(model.lowering), batch);
  Result<Plan> plan = plan_for(trace, request_for(std::string(model.name), 1_GiB * 4096));
  if (plan) {
    EXPECT_FALSE(check(trace, *plan)) << model.name;
  }
  return plan;
}

Bytes arena_of(std::string_view name, const std::string& network, std::int64_t batch) {
  const ModelEntry* model = find_model(name);
  const Trace trace = network_trace(network, *find_lowering(model->lowering), batch);
  const Result<Plan> plan = plan_of(*model, network, batch);
  EXPECT_TRUE(plan) << name << ": " << plan.error().message;
  return plan ? *smallest_arena(trace, *plan) : Bytes{-1};
}

TEST(FrameworkModels, PlanTracesOfTheirOwnLowering) {
  for (const ModelEntry& model : framework_models()) {
    EXPECT_TRUE(plan_of(model, "small_cnn", 4)) << model.name;
    EXPECT_FALSE(model.summary.empty());
  }
}

TEST(FrameworkModels, RefuseOtherTraces) {
  const Trace trace = network_trace("small_cnn", Lowering::native, 4);
  const Result<Plan> plan = plan_for(trace, request_for("caffe", 1_GiB));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::bad_usage);
  EXPECT_EQ(plan.error().message,
            "policy caffe is a model of a framework that needs a trace lowered as caffe, and "
            "small_cnn-b4 is lowered as native (superneurons build NETWORK --lowering caffe)");
  EXPECT_FALSE(plan_for(trace, request_for("liveness+mxnet", 1_GiB)));
}

TEST(FrameworkModels, KeepWhatTheFrameworkHolds) {
  const Trace trace = network_trace("small_cnn", Lowering::mxnet, 4);
  const Result<Plan> plan = plan_for(trace, request_for("mxnet", 1_GiB));
  ASSERT_TRUE(plan);
  for (std::size_t i = 0; i < trace.carry.size(); ++i)
    EXPECT_EQ(plan->begin[i].place, Place::device);  // gradients too
  EXPECT_FALSE(plan_for(trace, request_for("liveness:frees=some", 1_GiB)));
}

// Table 4 and 5 of the paper: Caffe < Torch, MXNet < TensorFlow for networks of residual blocks.
TEST(FrameworkModels, RankAsInThePaper) {
  for (const char* network : {"resnet50", "resnet101"}) {
    const Bytes caffe = arena_of("caffe", network, 16), torch = arena_of("torch", network, 16);
    const Bytes mxnet = arena_of("mxnet", network, 16);
    const Bytes tensorflow = arena_of("tensorflow", network, 16);
    EXPECT_GT(caffe, torch) << network;
    EXPECT_GT(torch, mxnet) << network;
    EXPECT_GT(mxnet, tensorflow) << network;
    EXPECT_LT(arena_of("torch_shared", network, 16), torch) << network;
    EXPECT_LT(arena_of("mxnet_mirror", network, 16), mxnet) << network;
  }
}

}  // namespace
}  // namespace superneurons
