// State that lives on the host, and copies that run beside the ops.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/check.h"
#include "memory/placement.h"
#include "policies/overlap.h"
#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

std::string steps_of(const Trace& trace, const Plan& plan) {
  std::string text;
  for (const PlanStep& step : plan.steps) {
    text += std::string(kStepKindNames[static_cast<std::size_t>(step.kind)]) + " ";
    text += (step.kind == StepKind::run ? trace[step.op()].name : trace[step.tensor()].name) + "; ";
  }
  return text;
}

Plan good_plan(const Trace& trace, const std::string& policy, Bytes device = 1_GiB,
               Bytes host = 1_GiB) {
  const Result<Plan> plan = plan_for(trace, request_for(policy, device, host));
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : Plan{};
}

std::size_t on_host(const Plan& plan) {
  return static_cast<std::size_t>(
      std::count_if(plan.begin.begin(), plan.begin.end(),
                    [](const Begin& begin) { return begin.place == Place::host; }));
}

// w is read twice and updated, m only updated; copies of 4000 B take 4000 ns.
const char* kUpdate = R"(
  tensor x 1K input carry
  tensor w 4000 parameter carry
  tensor m 4000 optimizer_state carry
  tensor y 1K activation
  tensor g 4000 gradient
  op a forward : x w -> y @1000
  op b forward : y -> y @9000
  op c backward : y w -> g @1000
  op d backward : y -> y @9000
  op u update once : w g m -> w m @1000
)";

TEST(OffloadState, MomentumComesForItsUpdateAndLeavesBehindIt) {
  const Trace trace = mini(kUpdate);
  const Plan plan = good_plan(trace, "liveness+offload_state:need=all,lookahead=0");
  EXPECT_EQ(steps_of(trace, plan),
            "run a; run b; run c; run d; free y; prefetch m; run u; offload m; free g; free m; ");
  EXPECT_EQ(on_host(plan), 1U);
}

TEST(OffloadState, TheCopyInStartsAheadOfTheNeedWhereThereIsRoom) {
  const Trace trace = mini(kUpdate);
  const Plan plan = good_plan(trace, "liveness+offload_state:need=all");
  EXPECT_EQ(steps_of(trace, plan),
            "run a; run b; run c; prefetch m; run d; free y; run u; offload m; free g; free m; ");
  const std::string steps =
      steps_of(trace, good_plan(trace, "liveness+offload_state:need=all,lookahead=2"));
  EXPECT_NE(steps.find("run b; prefetch m; run c;"), std::string::npos) << steps;
}

TEST(OffloadState, ParametersComeForEveryUseAndAreCopiedOutOnlyWhenUpdated) {
  const Trace trace = mini(kUpdate);
  const Plan plan =
      good_plan(trace, "liveness+offload_state:need=all,roles=parameters,lookahead=0");
  EXPECT_EQ(steps_of(trace, plan),
            "prefetch w; run a; free w; run b; prefetch w; run c; free w; run d; free y; "
            "prefetch w; run u; offload w; free g; free w; ");
}

TEST(OffloadState, GradientsWaitForTheirUpdate) {
  const Trace trace = mini(kUpdate);
  const Plan plan = good_plan(trace, "liveness+offload_state:need=all,roles=gradients,lookahead=0");
  EXPECT_EQ(steps_of(trace, plan),
            "run a; run b; run c; offload g; run d; free g; free y; prefetch g; free_host g; "
            "run u; free g; ");
}

TEST(OffloadState, MovesNothingThatFitsAndTheFewestThatDo) {
  const Trace trace = network_trace("small_cnn", Lowering::native, 4);
  const Bytes peak = peak_of(trace, "liveness");
  EXPECT_EQ(on_host(good_plan(trace, "liveness+offload_state", peak)), 0U);
  const std::size_t few = on_host(good_plan(trace, "liveness+offload_state", peak - 1_KiB));
  const std::size_t all = on_host(good_plan(trace, "liveness+offload_state:need=all"));
  EXPECT_GT(few, 0U);
  EXPECT_GT(all, few);
}

TEST(OffloadState, AlexNetGivesBackItsMomentum) {
  const Trace trace = network_trace("alexnet", Lowering::native, 1);
  Bytes momentum{};
  for (const Tensor& tensor : trace.tensors)
    if (tensor.role == Role::optimizer_state) momentum += tensor.bytes;
  const Bytes without = peak_of(trace, "liveness");
  const Bytes with = peak_of(trace, "liveness+offload_state:need=all,lookahead=0");
  // All but what the largest update needs at the peak.
  EXPECT_LT(with, without - Bytes{momentum.count / 4});
  const Plan plan = good_plan(trace, "liveness+offload_state:need=all", 4_GiB);
  EXPECT_GE(place(trace, plan, 4_GiB)->host_peak, momentum);
}

TEST(OffloadState, KeepsWithinTheHostBudget) {
  const Trace trace = mini(kUpdate);
  EXPECT_EQ(on_host(good_plan(trace, "offload_state:need=all", 1_GiB, 3_KiB)), 0U);
  EXPECT_EQ(on_host(good_plan(trace, "offload_state:need=all", 1_GiB, 4_KiB)), 1U);
  EXPECT_EQ(on_host(good_plan(trace, "offload_state:need=all,roles=both", 1_GiB, 4_KiB)), 1U);
}

TEST(OffloadState, BadOptionsAreExplained) {
  for (const char* options : {"roles=momentum", "need=some", "lookahead=3layer", "min=big"}) {
    const Result<Plan> plan =
        plan_for(mini(kUpdate), request_for(std::string("offload_state:") + options, 1_GiB));
    ASSERT_FALSE(plan) << options;
    EXPECT_EQ(plan.error().code, ErrorCode::bad_usage);
    EXPECT_NE(plan.error().message.find("it takes"), std::string::npos) << plan.error().message;
  }
}

// y leaves only when z needs room: it could go earlier, and come back earlier.
TEST(Overlap, CopiesGoBesideTheOpsWithinTheBudget) {
  const Trace trace = mini(R"(
    tensor x 1K input carry
    tensor y 4K activation
    tensor z 4K activation
    op a forward : x -> y @5000
    op b forward : y -> x @5000
    op c forward : x -> z @5000
    op d backward : z -> z @5000
    op e backward : x -> x @5000
    op f backward : y -> x @5000
  )");
  const Dataflow flow = analyze(trace);
  const DeviceProfile link = slow_link();
  Plan plan = keep_all_plan(trace);
  const auto run = [](std::uint32_t op) { return run_step({op}, 0); };
  const auto move = [](StepKind kind, std::uint32_t tensor) { return tensor_step(kind, {tensor}); };
  plan.steps = {run(0),
                run(1),
                move(StepKind::offload, 1),
                move(StepKind::free, 1),
                run(2),
                run(3),
                move(StepKind::free, 2),
                run(4),
                move(StepKind::prefetch, 1),
                move(StepKind::free_host, 1),
                run(5),
                move(StepKind::free, 1)};
  const auto overlapped = [&](Bytes device) {
    plan.budget = {device, 1_GiB};
    const PolicyContext context{trace, flow, link, plan.budget, {}, {}};
    const Plan result = overlap(context, plan);
    const std::optional<Violation> violation = check(trace, result);
    EXPECT_TRUE(!violation || violation->law == Law::over_budget) << to_error(*violation).message;
    return steps_of(trace, result);
  };
  // Too little for y and z: only the copy out is early, only the time after z has room.
  EXPECT_EQ(overlapped(6_KiB),
            "run a; offload y; run b; free y; run c; run d; free z; prefetch y; run e; "
            "free_host y; run f; free y; ");
  // More than enough: the free waits for the copy, and the copy in has time.
  EXPECT_EQ(overlapped(1_GiB),
            "run a; offload y; run b; free y; run c; prefetch y; run d; free z; run e; "
            "free_host y; run f; free y; ");
  EXPECT_EQ(overlapped(4_KiB), steps_of(trace, plan));  // does not fit: untouched
}

}  // namespace
}  // namespace superneurons
