// The pass `mix`: recomputation and moves weighed together where memory is very short; and how
// patiently copies look for a place beside the ops.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/check.h"
#include "memory/footprints.h"
#include "policies/overlap.h"
#include "policies/passes.h"
#include "policies/rewrite.h"
#include "tests/policies/recorded.h"

namespace superneurons {
namespace {

std::int64_t count(const Plan& plan, StepKind kind) {
  return std::count_if(plan.steps.begin(), plan.steps.end(),
                       [&](const PlanStep& step) { return step.kind == kind; });
}

Bytes bytes_moved(const Recorded& on, const Plan& plan) {
  Bytes bytes{};
  for (const PlanStep& step : plan.steps)
    if (step.kind == StepKind::offload) bytes += on.trace[step.tensor()].bytes;
  return bytes;
}

/// Everything a pass is called with, for a share of what liveness needs.
struct Call {
  const Recorded& on;
  Dataflow flow = analyze(on.trace);
  Footprints footprints{on.trace};
  Plan incoming;

  Call(const Recorded& recorded, int percent) : on(recorded), incoming(*on.plan("liveness", 100)) {
    incoming.budget.device.count = on.peak.count * percent / 100;
  }

  PolicyContext context(Nanoseconds to_beat = kLatest) const {
    return {on.trace, flow,    on.profile,  incoming.budget, on.predict, {{"tries", "auto"}},
            false,    nullptr, &footprints, to_beat};
  }
};

TEST(Mix, MakesConvolutionsAgainWhereMovingThemTakesLonger) {
  const Recorded on("resnet50-b64");
  const Result<Plan> plan = on.plan("liveness+mix", 25);
  const Result<Plan> paper = on.plan("superneurons", 25);
  ASSERT_TRUE(plan && paper);
  // All of the paper's cheap layers do not suffice, and the link is the bottleneck of what is left.
  EXPECT_LT(on.time(*plan).count, on.time(*paper).count * 6 / 10);
  EXPECT_LT(bytes_moved(on, *plan) * 2, bytes_moved(on, *paper));
  EXPECT_GT(bytes_moved(on, *plan), 0_B);
  const std::vector<bool> rerun = reruns(on.trace, *plan);
  int convolutions = 0;
  for (std::size_t i = 0; i < plan->steps.size(); ++i)
    if (rerun[i] && on.trace[plan->steps[i].op()].kind == "Conv2dForward") ++convolutions;
  EXPECT_GT(convolutions, 0);
}

TEST(Mix, LeavesAPlanThatFitsWithItsFastestChoicesAlone) {
  const Recorded on("alexnet-b128");
  const Result<Plan> plan = on.plan("liveness+mix", 200);
  ASSERT_TRUE(plan);
  EXPECT_EQ(count(*plan, StepKind::offload), 0);
  for (const PlanStep& step : plan->steps) {
    if (step.kind != StepKind::run) continue;
    const Op& op = on.trace[step.op()];
    EXPECT_LE(op.choices[step.choice].ns, op.choices[op.recorded].ns) << op.name;
  }
}

TEST(Mix, FinishesNoPlanThatCannotBeatAnother) {
  const Recorded on("alexnet-b128");
  const Call call(on, 70);
  const Result<Plan> plan = mix(call.context(), call.incoming);
  ASSERT_TRUE(plan);
  EXPECT_TRUE(fits(call.context(), *plan));
  const Nanoseconds time = on.time(*plan);
  const Result<Plan> hopeless = mix(call.context(1_ns), call.incoming);
  ASSERT_TRUE(hopeless);
  EXPECT_EQ(hopeless->steps, call.incoming.steps);
  // What it finds does not get worse for the rival that it beats.
  const Result<Plan> spurred = mix(call.context(time + 1_ns), call.incoming);
  ASSERT_TRUE(spurred);
  EXPECT_LE(on.time(*spurred), time);
}

TEST(Mix, MoreTriesAreNeverWorse) {
  const Recorded on("alexnet-b128");
  std::optional<Nanoseconds> before;
  for (const char* tries : {"1", "8", "40", "200"}) {
    const Result<Plan> plan = on.plan(std::string("liveness+mix:tries=") + tries, 65);
    ASSERT_TRUE(plan) << tries;
    if (before) {
      EXPECT_LE(on.time(*plan), *before) << tries;
    }
    before = on.time(*plan);
  }
}

TEST(Overlap, GivesWayOneCopyAtATimeWhereItIsPatient) {
  const Recorded on("resnet50-b64");
  const Result<Plan> demand = on.plan("liveness+recompute+tensor_cache:prefetch=demand", 40);
  ASSERT_TRUE(demand);
  const Call call(on, 40);
  const PolicyContext context = call.context();
  const Plan hasty = overlap(context, *demand);
  const Plan patient = overlap(context, *demand, {true, 300});
  for (const Plan* plan : {&hasty, &patient}) {
    EXPECT_FALSE(check(on.trace, *plan));
    EXPECT_TRUE(fits(context, *plan));
    EXPECT_EQ(count(*plan, StepKind::prefetch), count(*demand, StepKind::prefetch));
  }
  EXPECT_LT(on.time(hasty), on.time(*demand));
  EXPECT_LT(on.time(patient).count, on.time(hasty).count * 9 / 10);
  // Without any patience left it does as if it had none.
  EXPECT_EQ(overlap(context, *demand, {true, 1}).steps, hasty.steps);
  const Result<Plan> policy = on.plan("liveness+recompute+tensor_cache:prefetch=patient", 40);
  ASSERT_TRUE(policy);
  EXPECT_EQ(on.time(*policy), on.time(patient));
}

}  // namespace
}  // namespace superneurons
