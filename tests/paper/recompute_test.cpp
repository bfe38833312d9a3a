// Cost-aware recomputation as SuperNeurons (PPoPP 2018) prints it: table 1 and figure 10 (c), and
// what must hold of the three strategies on any network.
#include <gtest/gtest.h>

#include <algorithm>

#include "memory/layer_steps.h"
#include "networks/models.h"
#include "policies/policy.h"

namespace superneurons {
namespace {

constexpr Bytes kRoom{std::int64_t{1} << 44};

double mebibytes(Bytes bytes) { return static_cast<double>(bytes.count) / (1 << 20); }

Trace paper_trace(std::string_view network, std::int64_t batch) {
  const Result<Network> net = find_network(network);
  EXPECT_TRUE(net) << network;
  Result<Trace> trace = lower(*net, {.batch = batch, .lowering = Lowering::paper});
  EXPECT_TRUE(trace) << network;
  return *std::move(trace);
}

Plan good_plan(const Trace& trace, const std::string& policy) {
  PlanRequest request;
  request.policy = policy;
  request.budget = {kRoom, kRoom};
  const Result<Plan> plan = make_plan(trace, DeviceProfile{}, request, {});
  EXPECT_TRUE(plan) << policy << ": " << plan.error().message;
  return plan ? *plan : Plan{};
}

/// All that the paper's runtime drops: outputs of layers, whatever their size.
std::string dropping(const std::string& strategy, const std::string& more = "") {
  return "recompute:need=all,saved=keep,min=1,strategy=" + strategy + more;
}

/// What is not made again leaves the GPU but for the current need.
std::string off_gpu(const std::string& lookahead) {
  return "offload:layers=all,need=all,free=early,min=1,lookahead=" + lookahead;
}

std::int64_t runs_again(const Trace& trace, const Plan& plan) {
  const auto runs = std::count_if(plan.steps.begin(), plan.steps.end(),
                                  [](const PlanStep& step) { return step.kind == StepKind::run; });
  return runs - static_cast<std::int64_t>(trace.ops.size());
}

struct Extra {
  std::int64_t runs = 0;
  Bytes peak{};
};
Extra extra(const Trace& trace, const std::string& policy) {
  const Plan plan = good_plan(trace, policy);
  return {runs_again(trace, plan), scope_peak(trace, plan)};
}

class LayerPeakMeasures : public testing::TestWithParam<const char*> {};

// Table 1. 886.23 is 4 x 221.557 (CONV1, RELU1, LRN1 and the gradient in place), 993.018 the whole
// first segment with both gradients of POOL1.
TEST_P(LayerPeakMeasures, MakeTable1OfAlexNet) {
  const Trace trace = paper_trace("alexnet", 200);
  const std::string measure = std::string(",l_peak=") + GetParam();
  for (const char* rest : {"", "+offload:layers=all,need=all,free=early,min=1,lookahead=0"}) {
    const auto of = [&](const char* strategy) {
      return extra(trace, "liveness+" + dropping(strategy, measure) + rest);
    };
    const Extra speed = of("speed"), memory = of("memory"), aware = of("cost_aware");
    EXPECT_EQ(speed.runs, 14);
    EXPECT_EQ(memory.runs, 23);
    EXPECT_EQ(aware.runs, 17);
    EXPECT_NEAR(mebibytes(speed.peak), 993.018, 0.0005);
    EXPECT_NEAR(mebibytes(memory.peak), 886.230, 0.0005);
    EXPECT_NEAR(mebibytes(aware.peak), 886.230, 0.0005);
  }
}

// The paper prints 401 for the last two, which no rule of it gives: 406.125 is 4 x 101.53 at the
// stem's ReLU, without look-ahead.
TEST_P(LayerPeakMeasures, MakeTable1OfResNet50) {
  const Trace trace = paper_trace("resnet50", 32);
  const std::string measure = std::string(",l_peak=") + GetParam();
  const auto of = [&](const char* strategy, const char* lookahead) {
    return extra(trace, "liveness+" + dropping(strategy, measure) + "+" + off_gpu(lookahead));
  };
  const Extra speed = of("speed", "0"), memory = of("memory", "0"), aware = of("cost_aware", "0");
  EXPECT_EQ(speed.runs, 84);
  EXPECT_EQ(memory.runs, 118);
  EXPECT_EQ(aware.runs, 85);
  EXPECT_NEAR(mebibytes(speed.peak), 455.125, 0.0005);
  EXPECT_NEAR(mebibytes(memory.peak), 406.125, 0.0005);
  EXPECT_NEAR(mebibytes(aware.peak), 406.125, 0.0005);
}

INSTANTIATE_TEST_SUITE_P(Table1, LayerPeakMeasures, testing::Values("held", "distinct", "aliased"),
                         [](const auto& row) { return std::string(row.param); });

// Read off the figure to about 0.3 MiB: live activations and their gradients at each layer's own
// turn, after rebuilding; checkpoints stay.
TEST(Figure10c, AlexNetLivesAsPrinted) {
  struct Step {
    double mebibytes;
    int tensors;
  };
  constexpr Step kFigure[] = {
      {221.7, 1}, {443.2, 2}, {664.7, 3}, {496.7, 3},  {417.4, 3},  {506.3, 3}, {648.7, 4},
      {539.5, 4}, {446.4, 4}, {462.9, 4}, {512.5, 5},  {512.5, 5},  {545.5, 6}, {529.0, 6},
      {536.0, 7}, {506.1, 7}, {502.2, 7}, {505.4, 8},  {505.4, 8},  {505.4, 8}, {508.4, 9},
      {506.1, 9}, {503.8, 9}, {503.8, 9}, {512.4, 11}, {511.7, 10}, {508.4, 9}, {511.7, 10},
      {508.4, 9}, {505.4, 8}, {546.2, 9}, {576.0, 9},  {562.0, 7},  {595.0, 7}, {562.0, 6},
      {562.0, 6}, {512.6, 5}, {763.9, 7}, {857.0, 7},  {791.2, 5},  {648.9, 4}, {471.0, 4},
      {770.9, 5}, {886.1, 4}, {665.0, 3}, {340.0, 2}};
  const Trace trace = paper_trace("alexnet", 200);
  const Plan plan = good_plan(trace, "liveness+" + dropping("cost_aware"));
  const std::vector<LayerStep> steps = layer_steps(trace, plan);
  ASSERT_GE(steps.size(), std::size(kFigure));
  std::size_t highest = 0;
  for (std::size_t i = 0; i < std::size(kFigure); ++i) {
    EXPECT_NEAR(mebibytes(steps[i].bytes), kFigure[i].mebibytes, 0.7) << "step " << i + 1;
    EXPECT_EQ(steps[i].tensors, kFigure[i].tensors) << "step " << i + 1;
    if (steps[i].bytes > steps[highest].bytes) highest = i;
  }
  EXPECT_EQ(highest + 1, 44U);
  EXPECT_NEAR(mebibytes(steps[highest].bytes), 886.23, 0.0005);
  EXPECT_EQ(scope_peak(trace, plan), steps[highest].bytes);
}

}  // namespace
}  // namespace superneurons
