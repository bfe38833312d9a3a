// Cost-aware recomputation as SuperNeurons (PPoPP 2018) prints it: table 1 and figure 10 (c), and
// what must hold of the three strategies on any network.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

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
  return "offload:layers=checkpoints,need=all,free=early,min=1,lookahead=" + lookahead;
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
  for (const char* rest :
       {"", "+offload:layers=checkpoints,need=all,free=early,min=1,lookahead=0"}) {
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
  for (const auto& [strategy, other] :
       {std::pair{"speed", speed}, {"memory", memory}, {"cost_aware", aware}}) {
    const Extra reversed =
        extra(trace, "liveness+" + off_gpu("0") + "+" + dropping(strategy, measure));
    EXPECT_EQ(reversed.runs, other.runs) << strategy;
    EXPECT_EQ(reversed.peak, other.peak) << strategy;
  }
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

/// Runs of each op beyond its first.
std::vector<int> reruns_of(const Trace& trace, const Plan& plan) {
  std::vector<int> runs(trace.ops.size(), -1);
  for (const PlanStep& step : plan.steps)
    if (step.kind == StepKind::run) ++runs[step.subject];
  return runs;
}

Trace lowered(const Network& net, std::int64_t batch) {
  Result<Trace> trace = lower(net, {.batch = batch, .lowering = Lowering::paper});
  EXPECT_TRUE(trace) << trace.error().message;
  return *std::move(trace);
}

TEST(Strategies, AChainTakesNOrHalfNSquaredRuns) {
  for (int n = 1; n <= 12; ++n) {
    Network net = image_network("chain", {4, 8, 8}, 10);
    LayerId x = convolution(net, net.data(), {.channels = 4, .kernel = 3, .pad = 1});
    for (int i = 0; i < n; ++i) x = lrn(net, x);
    x = convolution(net, x, {.channels = 4, .kernel = 3, .pad = 1});
    softmax_cross_entropy(net, linear(net, x, {.features = 10}));
    const Trace trace = lowered(net, 32);
    EXPECT_EQ(extra(trace, "liveness+" + dropping("speed")).runs, n);
    EXPECT_EQ(extra(trace, "liveness+" + dropping("memory")).runs, n * (n + 1) / 2);
  }
}

// Segments end at forks and joins: relu1 | bn2 relu2 | bn3, which nobody reads in backward | relu3
// lrn3 | two relus into a concat | relu6.
TEST(Strategies, SegmentsEndAtForkJoinAndConcat) {
  Network net = image_network("branches", {4, 8, 8}, 10);
  const ConvolutionOptions same = {.channels = 8, .kernel = 3, .pad = 1};
  LayerId x = relu(net, convolution(net, net.data(), same, "conv1"), "relu1");
  LayerId y = relu(net, batch_norm(net, convolution(net, x, same, "conv2"), "bn2"), "relu2");
  y = batch_norm(net, convolution(net, y, same, "conv3"), "bn3");
  x = lrn(net, relu(net, add(net, {x, y}, "join"), "relu3"), "lrn3");
  const LayerId left = relu(net, convolution(net, x, same, "conv4"), "relu4");
  const LayerId right = relu(net, convolution(net, x, same, "conv5"), "relu5");
  x = relu(net, concat(net, {left, right}, "concat"), "relu6");
  softmax_cross_entropy(net, linear(net, x, {.features = 10}, "fc"));
  const Trace trace = lowered(net, 4);
  std::map<std::string, int> speed, memory;
  for (const auto& [strategy, counts] : {std::pair{"speed", &speed}, {"memory", &memory}}) {
    const std::vector<int> runs =
        reruns_of(trace, good_plan(trace, std::string("liveness+") + dropping(strategy)));
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (runs[i] > 0) (*counts)[trace.ops[i].layer] = runs[i];
  }
  EXPECT_EQ(speed, (std::map<std::string, int>{{"relu1", 1},
                                               {"bn2", 1},
                                               {"relu2", 1},
                                               {"relu3", 1},
                                               {"lrn3", 1},
                                               {"relu4", 1},
                                               {"relu5", 1},
                                               {"relu6", 1}}));
  // Only bn2 goes before its turn: relu3 is made for lrn3's layer, which needs both.
  speed["bn2"] = 2;
  EXPECT_EQ(memory, speed);
}

TEST(Strategies, AgreeOnWhatIsMadeAgainAndTradeRunsForMemory) {
  for (const char* network :
       {"vgg16", "vgg19", "resnet101", "resnet152", "densenet121", "inception_v4"})
    for (const std::int64_t batch : {1, 16, 40}) {
      SCOPED_TRACE(std::string(network) + " at " + std::to_string(batch));
      const Trace trace = paper_trace(network, batch);
      std::vector<Extra> of;
      std::vector<std::vector<int>> runs;
      for (const char* strategy : {"speed", "cost_aware", "memory"}) {
        const Plan plan = good_plan(trace, "liveness+" + dropping(strategy) + "+" + off_gpu("0"));
        of.push_back({runs_again(trace, plan), scope_peak(trace, plan)});
        runs.push_back(reruns_of(trace, plan));
      }
      EXPECT_GT(of[0].runs, 0);
      EXPECT_LE(of[0].runs, of[1].runs);
      EXPECT_LE(of[1].runs, of[2].runs);
      EXPECT_GE(of[0].peak, of[1].peak);
      EXPECT_GE(of[1].peak, of[2].peak);
      for (std::size_t i = 0; i < trace.ops.size(); ++i) {
        EXPECT_LE(runs[0][i], 1) << trace.ops[i].name;
        EXPECT_EQ(runs[0][i] > 0, runs[1][i] > 0) << trace.ops[i].name;
        EXPECT_EQ(runs[0][i] > 0, runs[2][i] > 0) << trace.ops[i].name;
      }
    }
}

// Table 1's claim does not hold where values of other branches wait beside a segment, which the
// rule of cost-aware recomputation does not see (policies/segments.h).
TEST(Strategies, CostAwareNeedsMoreThanMemoryCentricOnDenseNet) {
  const Trace trace = paper_trace("densenet121", 4);
  const auto of = [&](const char* strategy, const char* more) {
    return extra(trace, "liveness+" + dropping(strategy, more) + "+" + off_gpu("0"));
  };
  const Extra speed = of("speed", ""), memory = of("memory", "");
  EXPECT_NEAR(mebibytes(speed.peak), 59.719, 0.0005);
  EXPECT_NEAR(mebibytes(memory.peak), 53.594, 0.0005);
  EXPECT_EQ(of("cost_aware", "").peak, speed.peak);
  EXPECT_EQ(of("cost_aware", ",l_peak=aliased").peak, speed.peak);
  const Extra distinct = of("cost_aware", ",l_peak=distinct");
  EXPECT_EQ(distinct.peak, memory.peak);
  EXPECT_LT(distinct.runs, memory.runs);
}

// Runs grow and memory shrinks from speed to memory, also where durations decide about copies.
TEST(Strategies, HoldUnderABudgetToo) {
  Trace trace = paper_trace("alexnet", 200);
  PlanRequest request{.policy = "liveness+recompute:need=all,strategy=speed",
                      .budget = {kRoom, kRoom}};
  const auto floor = [&](const std::string& policy) {
    request.policy = policy;
    const Result<Floor> result = smallest_budget(trace, DeviceProfile{}, request, {});
    EXPECT_TRUE(result);
    return result ? result->budget : 0_B;
  };
  const Bytes speed = floor("liveness+recompute:strategy=speed");
  const Bytes memory = floor("liveness+recompute:strategy=memory");
  EXPECT_LT(memory, speed);
  EXPECT_EQ(floor("liveness_recompute"), memory);
  // Where speed-centric fits, it is what cost-aware does.
  request.budget.device = speed;
  std::vector<std::int64_t> runs;
  for (const char* strategy : {"speed", "cost_aware", "memory"}) {
    request.policy = std::string("liveness+recompute:strategy=") + strategy;
    const Result<Plan> plan = make_plan(trace, DeviceProfile{}, request, {});
    ASSERT_TRUE(plan);
    runs.push_back(runs_again(trace, *plan));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_LE(runs[1], runs[2]);
}

}  // namespace
}  // namespace superneurons
