// Policies on traces of PyTorch programs: every one makes a lawful plan, says that it does not fit
// and why, or says that it has nothing to do.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "ir/check.h"
#include "memory/placement.h"
#include "policies/op_families.h"
#include "simulator/outcome.h"
#include "tests/policies/fixtures.h"
#include "tests/torch_shapes.h"

namespace superneurons {
namespace {

Result<Plan> planned(const Trace& trace, const std::string& policy, int percent) {
  const Bytes peak = peak_of(trace, "liveness");
  const DeviceProfile profile = slow_link();
  return make_plan(trace, profile, request_for(policy, {peak.count * percent / 100}),
                   predictor(trace, profile));
}

Nanoseconds time_of(const Trace& trace, const Plan& plan) {
  const Result<Prediction> prediction = predictor(trace, slow_link())(plan);
  return prediction ? prediction->step_ns : Nanoseconds{-1};
}

std::int64_t moved(const Plan& plan) {
  return std::count_if(plan.steps.begin(), plan.steps.end(),
                       [](const PlanStep& step) { return step.kind == StepKind::offload; });
}

const Trace& shape(const std::string& name) {
  static const std::vector<TorchShape> shapes = torch_shapes();
  return std::find_if(shapes.begin(), shapes.end(),
                      [&](const TorchShape& each) { return each.name == name; })
      ->trace;
}

TEST(TorchTraces, AreLawful) {
  for (const TorchShape& each : torch_shapes()) EXPECT_FALSE(find_fault(each.trace)) << each.name;
}

TEST(TorchTraces, EveryPolicyFitsOrTellsWhatWould) {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policies()) names.emplace_back(entry.name);
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  for (const TorchShape& each : torch_shapes())
    for (const std::string& name : names)
      for (const int percent : {100, 80, 60, 40}) {
        SCOPED_TRACE(each.name + " " + name + " " + std::to_string(percent));
        const Result<Plan> plan = planned(each.trace, name, percent);
        if (!plan) {
          ASSERT_EQ(plan.error().code, ErrorCode::does_not_fit) << plan.error().message;
          ASSERT_TRUE(plan.error().shortage);
          EXPECT_GT(plan.error().shortage->smallest_budget, 0_B);
          continue;
        }
        EXPECT_FALSE(check(each.trace, *plan));
        EXPECT_TRUE(place(each.trace, *plan, plan->budget.device));
      }
}

TEST(TorchTraces, ModelsOfFrameworksAreRefusedWithHowToGetThem) {
  for (const ModelEntry& model : framework_models()) {
    const Result<Plan> plan = planned(shape("lstm"), std::string(model.name), 100);
    ASSERT_FALSE(plan);
    EXPECT_EQ(plan.error().code, ErrorCode::bad_usage);
    EXPECT_NE(plan.error().message.find("build NETWORK --lowering"), std::string::npos);
  }
}

TEST(TorchTraces, SuperneuronsFitsWhereLivenessDoesNot) {
  const std::vector<std::pair<const char*, int>> budgets = {
      {"resnet", 60}, {"micro_batches", 80}, {"lstm", 60}, {"transformer", 60}};
  for (const auto& [name, percent] : budgets) {
    SCOPED_TRACE(name);
    const Trace& trace = shape(name);
    EXPECT_FALSE(planned(trace, "liveness", percent));
    const Result<Plan> ours = planned(trace, "superneurons", percent);
    const Result<Plan> best = planned(trace, "superneurons_best", percent);
    ASSERT_TRUE(ours) << ours.error().message;
    ASSERT_TRUE(best) << best.error().message;
    EXPECT_LE(time_of(trace, *best), time_of(trace, *ours));
  }
}

TEST(TorchTraces, OffloadOfConvolutionsMovesThoseAlone) {
  const Trace& trace = shape("resnet");
  const Result<Plan> plan = planned(trace, "liveness+offload:layers=conv,need=all", 100);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_GT(moved(*plan), 0);
  for (const PlanStep& step : plan->steps)
    if (step.kind == StepKind::offload) {
      EXPECT_EQ(trace[step.tensor()].name.front(), 'c');
    }
}

TEST(TorchTraces, OffloadByDefaultLooksAtSizeWhereverTheValueIsMade) {
  const Result<Plan> plan = planned(shape("resnet"), "liveness+offload:need=all", 100);
  ASSERT_TRUE(plan);
  std::set<char> kinds;
  for (const PlanStep& step : plan->steps)
    if (step.kind == StepKind::offload) kinds.insert(shape("resnet")[step.tensor()].name.front());
  EXPECT_TRUE(kinds.count('c') == 1 && kinds.count('x') == 1);
}

std::vector<int> reruns_by_recompute(const Trace& trace) {
  const Result<Plan> plan = planned(trace, "liveness+recompute:need=all", 100);
  EXPECT_TRUE(plan) << plan.error().message;
  std::vector<int> again(trace.ops.size(), -1);
  for (const PlanStep& step : plan->steps)
    if (step.kind == StepKind::run) ++again[step.subject];
  return again;
}

TEST(TorchTraces, TimeDecidesWhatIsMadeAgainButNormsAndActivationsAlwaysAre) {
  Trace trace = shape("transformer");
  const auto made_again = [&](OpFamily family) {
    const std::vector<int> again = reruns_by_recompute(trace);
    int sum = 0;
    for (std::size_t i = 0; i < again.size(); ++i)
      if (family_of(trace.ops[i].kind) == family) sum += again[i];
    return sum;
  };
  for (Op& op : trace.ops)  // none by its time
    op.choices[0].ns = 10000000_ns;
  EXPECT_EQ(made_again(OpFamily::linear), 0);
  EXPECT_EQ(made_again(OpFamily::attention), 0);
  EXPECT_GT(made_again(OpFamily::activation), 0);
  for (Op& op : trace.ops)
    if (family_of(op.kind) == OpFamily::attention) op.choices[0].ns = 10_ns;
  EXPECT_EQ(made_again(OpFamily::linear), 0);
  EXPECT_GT(made_again(OpFamily::attention), 0);
}

// Of b only the clamp in place would show as its cost, 100; the norm below it has to run again,
// too.
TEST(TorchTraces, WhatLiesBelowAValueChangedInPlaceCountsAsItsCost) {
  Trace trace = mini(R"(
    tensor x 64K input carry
    tensor a 64K activation
    tensor b 64K activation
    tensor big 128K temporary
    tensor d 64K activation_gradient
    op gelu forward : x -> a @5000
    op native_layer_norm forward : x -> b @9000
    op relu_ forward : b -> b @100
    op other forward : x -> big @10000
    op b1 backward : b -> d @10000
    op b2 backward : a d -> d @10000
  )");
  for (Op& op : trace.ops) op.kind = "aten::" + op.name;
  const Result<Plan> plan = plan_for(trace, request_for("liveness+recompute", 256_KiB));
  ASSERT_TRUE(plan) << plan.error().message;
  std::vector<int> runs(trace.ops.size());
  for (const PlanStep& step : plan->steps)
    if (step.kind == StepKind::run) ++runs[step.subject];
  EXPECT_EQ(runs, (std::vector<int>{2, 1, 1, 1, 1, 1}));
}

TEST(TorchTraces, GradientsLiveUntilTheUpdateOfAllMicroBatches) {
  const Trace& trace = shape("micro_batches");
  EXPECT_EQ(trace.ops.back().micro_batch, 2);
  const Result<Plan> plan = planned(trace, "superneurons", 80);
  ASSERT_TRUE(plan);
  std::set<std::string> updated;
  for (const PlanStep& step : plan->steps) {
    if (step.kind == StepKind::run && trace[step.op()].phase == Phase::update)
      updated.insert(trace[trace[step.op()].reads[0].tensor].name);
    if (step.kind == StepKind::free && trace[step.tensor()].role == Role::gradient) {
      EXPECT_EQ(updated.count(trace[step.tensor()].name), 1U);
    }
  }
}

TEST(TorchTraces, APassWithNothingToDoSaysSo) {
  const auto remarks = [](const char* name, const char* policy) {
    return idle_passes(shape(name), policy);
  };
  ASSERT_EQ(remarks("lstm", "liveness+offload:layers=conv").size(), 1U);
  EXPECT_NE(remarks("lstm", "liveness+offload:layers=conv")[0].find("layers=conv"),
            std::string::npos);
  EXPECT_TRUE(remarks("resnet", "liveness+offload:layers=conv").empty());
  ASSERT_EQ(remarks("lstm", "superneurons").size(), 1U) << "once, in however many alternatives";
  EXPECT_NE(remarks("lstm", "superneurons")[0].find("one choice"), std::string::npos);
  EXPECT_TRUE(remarks("lstm", "liveness+offload_state+recompute+tensor_cache+balance").empty());
  Trace inference = shape("lstm");
  std::erase_if(inference.ops, [](const Op& op) { return op.phase != Phase::forward; });
  EXPECT_EQ(idle_passes(inference, "liveness+offload+recompute").size(), 2U);
  ASSERT_EQ(remarks("lstm", "offload").size(), 1U);
  EXPECT_NE(remarks("lstm", "offload")[0].find("liveness+offload"), std::string::npos);
  EXPECT_TRUE(remarks("lstm", "keep_all").empty());
  EXPECT_TRUE(idle_passes(inference, "no_such_policy").empty());
}

TEST(TorchTraces, APolicyIsRefusedWhereFactsLack) {
  Trace trace = shape("resnet");
  trace.capabilities[static_cast<std::size_t>(Fact::accesses)] = Capability::none;
  const Result<Plan> plan = planned(trace, "recorded+offload", 100);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::bad_usage);
  EXPECT_NE(plan.error().message.find("accesses"), std::string::npos) << plan.error().message;
}

TEST(OpFamilies, KnowOurKindsAndThoseOfPyTorch) {
  EXPECT_EQ(family_of("Conv2dForward"), OpFamily::convolution);
  EXPECT_EQ(family_of("Conv2dBackwardData"), OpFamily::other);
  EXPECT_EQ(family_of("aten::convolution"), OpFamily::convolution);
  EXPECT_EQ(family_of("aten::convolution_backward"), OpFamily::other);
  EXPECT_EQ(family_of("aten::relu_"), OpFamily::activation);
  EXPECT_EQ(family_of("aten::addmm.out"), OpFamily::linear);
  EXPECT_EQ(family_of("aten::"), OpFamily::other);
  EXPECT_EQ(family_of("mine::convolution"), OpFamily::other);
  EXPECT_EQ(family_of("convolution"), OpFamily::other);
  EXPECT_TRUE(is_foreign("aten::mm") && !is_foreign("LinearForward"));
}

}  // namespace
}  // namespace superneurons
