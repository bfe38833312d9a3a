// What offload and recompute decide, step by step on small traces.
#include <gtest/gtest.h>

#include <algorithm>

#include "memory/placement.h"
#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

std::string step_name(const Trace& trace, const PlanStep& step) {
  const std::string subject =
      step.kind == StepKind::run ? trace[step.op()].name : trace[step.tensor()].name;
  return std::string(kStepKindNames[static_cast<std::size_t>(step.kind)]) + " " + subject;
}

std::string steps_of(const Trace& trace, const Plan& plan) {
  std::string text;
  for (const PlanStep& step : plan.steps) text += step_name(trace, step) + "; ";
  return text;
}

/// Place of a step such as "offload y1", or -1.
int place_of(const Trace& trace, const Plan& plan, const std::string& wanted) {
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (step_name(trace, plan.steps[i]) == wanted) return static_cast<int>(i);
  return -1;
}

int count_of(const Plan& plan, StepKind kind) {
  return static_cast<int>(std::count_if(plan.steps.begin(), plan.steps.end(),
                                        [&](const PlanStep& step) { return step.kind == kind; }));
}

Plan good_plan(const Trace& trace, const std::string& policy, Bytes device = 1_GiB,
               Bytes host = 1_GiB) {
  const Result<Plan> plan = plan_for(trace, request_for(policy, device, host));
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : Plan{};
}

// One layer's output of 4000 B at 1 B/ns waits from a (ends at 1000) over b, c, d, e (4000 ns
// each).
const char* kWait = R"(
  tensor x 1K input carry
  tensor y 4000 activation
  tensor z 1K activation
  op Conv2dForward forward : x -> y @1000
  op b forward : y -> z @2000
  op c forward : z -> z @4000
  op d backward : z -> z @4000
  op e backward : z -> z @4000
  op f backward : y z -> z @1000
)";

TEST(Offload, CopiesHideFreesFollowTheCopyAndPrefetchesLeadTheNeed) {
  const Trace trace = mini(kWait);
  // Out from 1000 to 5000, so gone after c (7000); in from 11000 to 15000, so issued before e.
  EXPECT_EQ(steps_of(trace, good_plan(trace, "liveness+offload:need=all")),
            "run Conv2dForward; offload y; run b; run c; free y; run d; prefetch y; run e; "
            "free_host y; run f; free y; free z; ");
}

TEST(Offload, EarlyFreeAndFixedLookahead) {
  const Trace trace = mini(kWait);
  EXPECT_EQ(steps_of(trace, good_plan(trace, "liveness+offload:need=all,free=early,lookahead=0")),
            "run Conv2dForward; offload y; run b; free y; run c; run d; run e; prefetch y; "
            "free_host y; run f; free y; free z; ");
  EXPECT_EQ(steps_of(trace, good_plan(trace, "liveness+offload:need=all,free=early,lookahead=2")),
            "run Conv2dForward; offload y; run b; free y; run c; prefetch y; run d; run e; "
            "free_host y; run f; free y; free z; ");
}

TEST(Offload, LookaheadInLayerSteps) {
  const Trace trace = layered_trace(6);
  const Plan plan = good_plan(trace, "liveness+offload:need=all,free=early,lookahead=3layers");
  // y2 is needed by BatchNormBackward.2; three layer steps ahead starts with ReluBackward.5.
  EXPECT_EQ(place_of(trace, plan, "prefetch y2") + 1, place_of(trace, plan, "run ReluBackward.5"));
}

TEST(Offload, MovesConvolutionAndLinearOutputsUnlessAskedForAll) {
  const Trace trace = layered_trace(6);
  const Plan heavy = good_plan(trace, "liveness+offload:need=all,free=early,lookahead=0");
  const Plan all = good_plan(trace, "liveness+offload:need=all,free=early,lookahead=0,layers=all");
  EXPECT_GE(place_of(trace, heavy, "offload y2"), 0);
  EXPECT_LT(place_of(trace, heavy, "offload x2"), 0);
  EXPECT_GE(place_of(trace, all, "offload x2"), 0);
}

TEST(Offload, MovesNothingThatFitsAndNotMoreThanNeeded) {
  const Trace trace = layered_trace(12);
  const Bytes peak = peak_of(trace, "liveness");
  EXPECT_EQ(count_of(good_plan(trace, "liveness_offload", peak), StepKind::offload), 0);
  const int few = count_of(good_plan(trace, "liveness_offload", peak - 1_KiB), StepKind::offload);
  const int many =
      count_of(good_plan(trace, "liveness_offload", peak - 256_KiB), StepKind::offload);
  EXPECT_GT(few, 0);
  EXPECT_GT(many, few);
}

TEST(Offload, KeepsWithinTheHostBudget) {
  const Trace trace = layered_trace(8);
  const Plan plan = good_plan(trace, "liveness+offload:need=all", 1_GiB, 200_KiB);
  EXPECT_EQ(count_of(plan, StepKind::offload), 3);  // of 64 KiB each
  EXPECT_EQ(count_of(good_plan(trace, "liveness+offload:need=all", 1_GiB, 0_B), StepKind::offload),
            0);
}

TEST(Offload, SmallTensorsStay) {
  const Trace trace = mini(kWait);
  const Plan plan = good_plan(trace, "liveness+offload:need=all,min=4KiB");
  EXPECT_EQ(count_of(plan, StepKind::offload), 0);
}

TEST(Offload, ProgramsWithoutConvolutionsMoveWhatWaitsLongest) {
  Trace trace = layered_trace(6);
  for (Op& op : trace.ops) op.kind = "aten.mm";
  EXPECT_GT(count_of(good_plan(trace, "liveness+offload:need=all"), StepKind::offload), 0);
}

TEST(Offload, BadOptionsAreExplained) {
  for (const char* options : {"lookahead=many", "lookahead=-1", "lookahead=3layer", "free=soon",
                              "need=some", "layers=relu", "min=big"}) {
    const Result<Plan> plan =
        plan_for(mini(kWait), request_for(std::string("offload:") + options, 1_GiB));
    ASSERT_FALSE(plan) << options;
    EXPECT_EQ(plan.error().code, ErrorCode::bad_usage);
    EXPECT_NE(plan.error().message.find("it takes"), std::string::npos) << plan.error().message;
  }
}

// a is kept (convolution); p and r are cheap; r is made in place on q.
const char* kSegment = R"(
  tensor x 8K input carry
  tensor a 8K activation
  tensor p 8K activation
  tensor q 8K activation
  tensor s 1K saved
  tensor c 8K activation
  tensor g 8K activation_gradient
  op Conv2dForward forward : x -> a
  op LrnForward forward : a -> p
  op BatchNormForward forward : p -> q s
  op ReluForward forward : q -> q
  op Conv2dForward2 forward : q -> c
  op Loss forward : c -> g
  op ReluBackward backward : q g -> g
  op BatchNormBackward backward : p s g -> g
  op LrnBackward backward : a p g -> g
)";

TEST(Recompute, RerunsASegmentOnceAndInPlaceOpsFromTheirOldVersion) {
  Trace trace = mini(kSegment);
  trace.ops[4].kind = "Conv2dForward";
  trace.ops[5].kind = "SoftmaxCrossEntropyForward";
  // s is smaller than a unit: it stays, and the rerun writes it again.
  EXPECT_EQ(steps_of(trace, good_plan(trace,
                                      "liveness+recompute:need=all,"
                                      "strategy=speed,min=2KiB")),
            "run Conv2dForward; run LrnForward; run BatchNormForward; free p; run ReluForward; "
            "run Conv2dForward2; free q; run Loss; free c; "
            "run LrnForward; run BatchNormForward; run ReluForward; "
            "run ReluBackward; free q; run BatchNormBackward; free s; run LrnBackward; "
            "free a; free p; free g; ");
}

TEST(Recompute, OpsThatMustRunOnceAreNotRerun) {
  Trace trace = mini(kSegment);
  trace.ops[4].kind = "Conv2dForward";
  trace.ops[5].kind = "SoftmaxCrossEntropyForward";
  trace.ops[1].rerunnable = false;
  const Plan plan = good_plan(trace, "liveness+recompute:need=all");
  EXPECT_EQ(place_of(trace, plan, "free p") > place_of(trace, plan, "run Loss"), true);
  EXPECT_EQ(std::count_if(plan.steps.begin(), plan.steps.end(),
                          [](const PlanStep& step) {
                            return step.kind == StepKind::run && step.subject == 1;
                          }),
            1);
}

TEST(Recompute, DiscardsOutputsThatNobodyWants) {
  const Trace trace = mini(R"(
    tensor x 8K input carry
    tensor a 8K activation
    tensor b 8K activation
    tensor c 8K activation
    op ReluForward forward : x -> a b
    op use forward : a b -> c @1000000
    op back backward : a c -> c
  )");
  const Plan plan = good_plan(trace, "liveness+recompute:need=all");
  const auto rerun = std::find_if(plan.steps.rbegin(), plan.steps.rend(), [](const PlanStep& step) {
    return step.kind == StepKind::run && step.subject == 0;
  });
  ASSERT_EQ(count_of(plan, StepKind::run), 3);  // nothing waits: use and back are neighbours
  EXPECT_TRUE(rerun->discard.empty());
  const Trace apart = mini(R"(
    tensor x 8K input carry
    tensor a 8K activation
    tensor b 8K activation
    tensor c 8K activation
    op ReluForward forward : x -> a b
    op use forward : a b -> c @1000000
    op more forward : c -> c @1000000
    op back backward : a c -> c
  )");
  const Plan second = good_plan(apart, "liveness+recompute:need=all");
  ASSERT_EQ(count_of(second, StepKind::run), 5);
  const PlanStep& again = second.steps[place_of(apart, second, "run more") + 1];
  ASSERT_EQ(again.kind, StepKind::run);
  ASSERT_EQ(again.discard.size(), 1U);
  EXPECT_EQ(apart[again.discard[0]].name, "b");
}

TEST(Recompute, ForksStay) {
  Trace trace = mini(R"(
    tensor x 8K input carry
    tensor a 8K activation
    tensor b 8K activation
    tensor c 8K activation
    op ReluForward forward : x -> a
    op use1 forward : a -> b @1000000
    op use2 forward : a -> c @1000000
    op more forward : b c -> c @1000000
    op back backward : a c -> c
  )");
  EXPECT_EQ(count_of(good_plan(trace, "liveness+recompute:need=all"), StepKind::run), 5);
}

TEST(Recompute, CheapnessOfUnknownKindsIsByTimePerByte) {
  const Trace trace = mini(R"(
    tensor x 8K input carry
    tensor a 8K activation
    tensor b 8K activation
    tensor c 8K activation
    op heavy forward : x -> a @1000000
    op light forward : a -> b @2000
    op use forward : b -> c @1000000
    op more forward : c -> c @1000000
    op back1 backward : b c -> c @2000
    op back2 backward : a c -> c @2000
  )");
  const Plan plan = good_plan(trace, "liveness+recompute:need=all");
  ASSERT_EQ(count_of(plan, StepKind::run), 7);
  EXPECT_EQ(place_of(trace, plan, "run more") + 1,
            place_of(trace, plan, "run back1") - 1);  // light again, in between
}

TEST(Recompute, BadOptionsAreExplained) {
  for (const char* options :
       {"strategy=fast", "strategy=", "need=some", "saved=yes", "l_peak=max", "min=big"}) {
    const Result<Plan> plan =
        plan_for(mini(kSegment), request_for(std::string("recompute:") + options, 1_GiB));
    ASSERT_FALSE(plan) << options;
    EXPECT_EQ(plan.error().code, ErrorCode::bad_usage);
    EXPECT_NE(plan.error().message.find("it takes"), std::string::npos) << plan.error().message;
  }
}

TEST(OffloadAndRecompute, APrefetchMovesAheadOfTheSegmentThatNeedsIt) {
  const Trace trace = layered_trace(6);
  const Plan plan =
      good_plan(trace, "liveness+offload:need=all,free=early,lookahead=0+recompute:need=all");
  // x4 is made again from y4, before ReluBackward.4: earlier than BatchNormBackward.4 needs y4.
  int rerun = -1;
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (step_name(trace, plan.steps[i]) == "run BatchNormForward.4") rerun = static_cast<int>(i);
  EXPECT_GT(rerun, place_of(trace, plan, "run Loss.1"));
  const int prefetch = place_of(trace, plan, "prefetch y4");
  ASSERT_GE(prefetch, 0);
  EXPECT_LT(prefetch, rerun);
  EXPECT_EQ(count_of(plan, StepKind::prefetch), count_of(plan, StepKind::offload));
}

TEST(OffloadAndRecompute, TogetherGoLowerThanEither) {
  const Trace trace = layered_trace(12);
  const auto floor = [&](const char* policy) {
    const Result<Floor> result =
        smallest_budget(trace, slow_link(), request_for(policy, 1_GiB), {});
    return result ? result->budget : Bytes{};
  };
  EXPECT_LT(floor("liveness_offload"), floor("liveness"));
  EXPECT_LT(floor("liveness_recompute"), floor("liveness"));
  EXPECT_LT(floor("offload_recompute"), floor("liveness_offload"));
  EXPECT_LT(floor("offload_recompute"), floor("liveness_recompute"));
  EXPECT_LT(floor("recompute_offload"), floor("liveness_recompute"));
}

TEST(Offload, PrefersTheTimingThatTheSimulatorPrefers) {
  const Trace trace = layered_trace(12);
  const PlanRequest request = request_for("liveness_offload", peak_of(trace, "liveness") - 256_KiB);
  // A simulator that hates early prefetches: the distance from prefetch to need is the time.
  const Predict predict = [&](const Plan& plan) -> Result<Prediction> {
    std::int64_t distance = 0;
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      if (plan.steps[i].kind == StepKind::prefetch) distance -= static_cast<std::int64_t>(i);
      if (plan.steps[i].kind == StepKind::free_host) distance += static_cast<std::int64_t>(i);
    }
    return Prediction{{distance}, {}, {}};
  };
  const Result<Plan> plain = make_plan(trace, slow_link(), request, {});
  const Result<Plan> chosen = make_plan(trace, slow_link(), request, predict);
  ASSERT_TRUE(plain && chosen);
  EXPECT_LT(predict(*chosen)->step_ns, predict(*plain)->step_ns);
}

}  // namespace
}  // namespace superneurons
