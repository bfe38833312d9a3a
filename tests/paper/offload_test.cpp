// The unified tensor pool against what the paper prints: figure 10b, layer step by layer step, and
// the rules behind it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "ir/check.h"
#include "ir/dataflow.h"
#include "memory/placement.h"
#include "networks/network.h"
#include "policies/policy.h"

namespace superneurons {
namespace {

constexpr double kMebibyte = 1 << 20;

/// 8 bytes per ns each way, the paper's rate of its host link.
DeviceProfile paper_link() {
  DeviceProfile profile;
  profile.name = "paper";
  profile.offload = profile.prefetch = {{{1_B, 0_ns}}, 8};
  return profile;
}

Trace paper_trace(const Network& network, std::int64_t batch) {
  Result<Trace> trace = lower(network, {.batch = batch, .lowering = Lowering::paper});
  EXPECT_TRUE(trace) << trace.error().message;
  return trace ? *trace : Trace{};
}

Plan plan_of(const Trace& trace, const std::string& policy,
             Budget budget = {1_GiB * 64, 1_GiB * 64}) {
  PlanRequest request;
  request.policy = policy;
  request.budget = budget;
  const Result<Plan> plan = make_plan(trace, paper_link(), request, {});
  EXPECT_TRUE(plan) << policy << ": " << plan.error().message;
  return plan ? *plan : Plan{};
}

/// Activations and their gradients on the device, in MiB, at each op's first run before the
/// updates: what the paper counts, in its layer steps.
std::vector<double> scope_of(const Trace& trace, const Plan& plan) {
  std::vector<double> steps;
  const std::vector<Residency> rows = residency(trace, plan);
  std::set<std::uint32_t> ran;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    if (step.kind != StepKind::run || trace[step.op()].phase == Phase::update) continue;
    if (!ran.insert(step.subject).second) continue;
    const auto& role = rows[i].by_role;
    const Bytes scope = role[static_cast<std::size_t>(Role::activation)] +
                        role[static_cast<std::size_t>(Role::activation_gradient)];
    steps.push_back(static_cast<double>(scope.count) / kMebibyte);
  }
  return steps;
}

double peak_of(const std::vector<double>& steps) {
  return *std::max_element(steps.begin(), steps.end());
}

/// Names of the layers whose outputs are copied out, in the order of their copies.
std::vector<std::string> moved_layers(const Trace& trace, const Plan& plan) {
  std::vector<std::string> names;
  for (const PlanStep& step : plan.steps)
    if (step.kind == StepKind::offload) names.push_back(trace[step.tensor()].name);
  return names;
}

/// How the figure was made: section 1.6 of the reference.
const std::string kFigure10b =
    "liveness+offload:need=all,layers=conv_linear,lookahead=3layers,free=early";

TEST(PaperOffload, AlexNetLivesAsInFigure10b) {
  const std::vector<double> figure = {
      221.8, 443.2,  443.2,  496.6,  639.1, 781.3, 781.3, 814.3,  863.7,  913.4,  913.4,  962.9,
      946.4, 979.4,  953.4,  956.4,  959.7, 959.7, 962.7, 965.9,  965.9,  966.7,  967.4,  970.6,
      972.9, 972.0,  972.0,  969.0,  965.9, 995.7, 996.6, 1076.0, 1061.9, 1094.8, 1061.8, 1012.4,
      962.9, 1039.2, 1132.0, 1066.2, 923.7, 914.0, 992.9, 886.2,  664.9,  339.8};
  const Trace trace = paper_trace(*find_network("alexnet"), 200);
  const std::vector<double> ours = scope_of(trace, plan_of(trace, kFigure10b));
  ASSERT_EQ(ours.size(), figure.size());
  for (std::size_t k = 0; k < figure.size(); ++k)
    EXPECT_NEAR(ours[k], figure[k], 0.7) << "layer step " << k + 1;
  const auto peak = std::max_element(ours.begin(), ours.end());
  EXPECT_EQ(peak - ours.begin() + 1, 39);
  EXPECT_GE(*peak, 1132.055);
  EXPECT_LE(*peak, 1132.155);
}

// The last FC layer is offloaded by rule, but its output is needed again at once: it falls out of
// the look-ahead, not out of a list.
TEST(PaperOffload, TheLastFcLayerStaysAsItIsNeededAtOnce) {
  const Trace trace = paper_trace(*find_network("alexnet"), 200);
  const std::vector<std::string> moved = moved_layers(trace, plan_of(trace, kFigure10b));
  const std::vector<std::string> conv = moved_layers(
      trace, plan_of(trace, "liveness+offload:need=all,layers=conv,lookahead=3layers,free=early"));
  EXPECT_EQ(moved.size(), 7U);
  EXPECT_EQ(conv.size(), 5U);
  EXPECT_TRUE(std::equal(conv.begin(), conv.end(), moved.begin()));
}

// Peaks at other look-aheads, worked out by hand from the shapes: section 1.6 of the reference.
TEST(PaperOffload, PeaksFollowTheLookahead) {
  const Trace trace = paper_trace(*find_network("alexnet"), 200);
  const std::map<int, double> peaks = {
      {0, 1012.3}, {1, 1066.0}, {2, 1132.056}, {3, 1132.056}, {4, 1145.2}};
  for (const auto& [layers, peak] : peaks) {
    const std::string policy =
        "liveness+offload:need=all,layers=conv_linear,free=early,lookahead=" +
        std::to_string(layers) + "layers";
    EXPECT_NEAR(peak_of(scope_of(trace, plan_of(trace, policy))), peak, 0.05) << layers;
  }
}

}  // namespace
}  // namespace superneurons
