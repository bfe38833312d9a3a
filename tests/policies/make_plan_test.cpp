// Requests, and liveness and the recorded frees step by step.
#include <gtest/gtest.h>

#include <atomic>

#include "memory/placement.h"
#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

TEST(MakePlan, OptionsOfACompositionNameItsPasses) {
  const Result<Plan> plan =
      plan_for(policy_traces()[0].trace, request_for("liveness_offload:need=all", 1_GiB));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::bad_usage);
  EXPECT_EQ(plan.error().message,
            "policy liveness_offload is a composition and takes no options; write its passes, "
            "liveness+offload, with theirs");
}

TEST(MakePlan, SizesNearTheLargestDoNotOverflow) {
  Trace trace = mini(R"(
    tensor x 4K input carry
    tensor a 4K activation
    tensor b 4K activation
    op f forward : x -> a
    op g forward : a -> b
    op h backward : a b -> x
  )");
  for (const std::size_t i : {1, 2}) trace.tensors[i].bytes = {std::int64_t{1} << 60};
  access_whole_tensors(trace);
  ASSERT_FALSE(find_fault(trace));
  const Result<Plan> plan = plan_for(trace, request_for("liveness+offload", 1_GiB));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::does_not_fit);
  EXPECT_GE(plan.error().shortage->smallest_budget.count, std::int64_t{1} << 61);
}

/// "run relu; free y; ..." with the names of the trace.
std::string steps_of(const Trace& trace, const Plan& plan) {
  std::string text;
  for (const PlanStep& step : plan.steps) {
    if (!text.empty()) text += "; ";
    text += std::string(kStepKindNames[static_cast<std::size_t>(step.kind)]) + " ";
    text += step.kind == StepKind::run ? trace[step.op()].name : trace[step.tensor()].name;
  }
  return text;
}

std::string error_of(const Trace& trace, const std::string& policy,
                     ErrorCode code = ErrorCode::bad_usage) {
  const Result<Plan> plan = plan_for(trace, request_for(policy, 1_GiB));
  if (plan) return "no error";
  EXPECT_EQ(plan.error().code, code) << plan.error().message;
  return plan.error().message;
}

const char* kShort = R"(
  tensor x 4K input carry
  tensor t 4K temporary carry
  tensor y 4K activation
  tensor z 4K activation
  tensor g_old 4K gradient
  tensor g 4K gradient
  carry g g_old
  op a forward : x -> y
  op b forward : y -> z t
  op c forward : x -> y
  op d backward : y z -> g
  op e update : x -> x
)";

TEST(Liveness, FreesAfterTheLastNeedAndBetweenValues) {
  const Trace trace = mini(kShort);
  const Result<Plan> plan = plan_for(trace, request_for("liveness", 1_GiB));
  ASSERT_TRUE(plan) << plan.error().message;
  // y dies after b and is written anew by c, at once: freeing it in between would gain nothing.
  EXPECT_EQ(steps_of(trace, *plan),
            "run a; run b; free t; run c; run d; free y; free z; free g; run e");
  EXPECT_EQ(plan->begin[0].place, Place::device);   // x is read
  EXPECT_EQ(plan->begin[1].place, Place::nowhere);  // t is written first
  EXPECT_EQ(plan->begin[2].place, Place::nowhere);
}

TEST(Liveness, FreesAValueThatIsOverwrittenMuchLater) {
  const Trace trace = mini(R"(
    tensor x 4K input carry
    tensor y 4K activation
    tensor z 4K activation
    op a forward : x -> y
    op b forward : y -> z
    op c forward : z -> z
    op d forward : z -> y
  )");
  const Result<Plan> plan = plan_for(trace, request_for("liveness", 1_GiB));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(steps_of(trace, *plan), "run a; run b; free y; run c; run d; free y; free z");
}

TEST(Liveness, ExplainsEachFree) {
  const Trace trace = mini(kShort);
  PlanRequest request = request_for("liveness", 1_GiB);
  request.explain = true;
  const Result<Plan> plan = plan_for(trace, request);
  ASSERT_TRUE(plan);
  ASSERT_EQ(plan->reasons.size(), 4U);
  EXPECT_EQ(plan->reasons[0].text, "no step needs t after b");
  EXPECT_EQ(plan->steps[plan->reasons[0].step].kind, StepKind::free);
}

TEST(Liveness, IsIdempotent) {
  for (const auto& [name, trace] : policy_traces()) {
    const Result<Plan> once = plan_for(trace, request_for("liveness", 1_GiB));
    const Result<Plan> twice = plan_for(trace, request_for("liveness+liveness", 1_GiB));
    ASSERT_TRUE(once && twice) << name;
    EXPECT_EQ(steps_of(trace, *once), steps_of(trace, *twice)) << name;
  }
}

/// y1 = f(y0), y2 = f(y1), ... and back.
Trace long_chain(std::uint32_t length) {
  Trace trace;
  trace.name = "long";
  trace.capabilities.fill(Capability::exact);
  const auto add_op = [&](Phase phase, std::vector<std::uint32_t> reads, std::uint32_t write) {
    Op op;
    op.name = "op" + std::to_string(trace.ops.size());
    op.kind = "ReluForward";
    op.phase = phase;
    for (const std::uint32_t read : reads) op.reads.push_back({{read}, {}, 4_KiB});
    op.writes.push_back({{write}, {}, 4_KiB});
    op.choices.push_back({.ns = 1000_ns});
    trace.ops.push_back(op);
  };
  for (std::uint32_t i = 0; i <= 2 * length; ++i) {
    Tensor tensor;
    tensor.name = "t" + std::to_string(i);
    tensor.bytes = 4_KiB;
    tensor.role = i <= length ? Role::activation : Role::activation_gradient;
    trace.tensors.push_back(tensor);
  }
  trace.carry.push_back({{0}, {0}});
  for (std::uint32_t i = 1; i <= length; ++i) add_op(Phase::forward, {i - 1}, i);
  for (std::uint32_t i = length; i >= 1; --i)
    add_op(Phase::backward, {i, i == length ? i : length + i + 1}, length + i);
  return trace;
}

TEST(Liveness, PlansAHundredThousandOps) {
  const Trace trace = long_chain(50'000);
  const Result<Plan> plan = plan_for(trace, request_for("liveness", Bytes{std::int64_t{1} << 40}));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_GT(plan->steps.size(), trace.ops.size());
}

TEST(Recorded, FreesWhereTheProgramDid) {
  Trace trace = mini(kShort);
  trace.tensors[3].freed_before = OpId{4};
  const Result<Plan> plan = plan_for(trace, request_for("recorded", 1_GiB));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(steps_of(trace, *plan), "run a; run b; run c; run d; free z; run e; free y; free g");
}

TEST(Recorded, IsRefusedWhereTheTraceHasNoFrees) {
  Trace trace = mini(kShort);
  trace.capabilities[static_cast<std::size_t>(Fact::frees)] = Capability::none;
  EXPECT_EQ(error_of(trace, "recorded"),
            "policy recorded needs to know frees, which trace 'mini' does not tell");
}

TEST(Request, UnknownNamesAreExplained) {
  const Trace trace = mini(kShort);
  EXPECT_EQ(error_of(trace, "livenes"), "unknown policy 'livenes' (did you mean liveness?)");
  EXPECT_NE(error_of(trace, "qwertyuiop").find("there are keep_all, recorded, liveness"),
            std::string::npos);
  EXPECT_NE(error_of(trace, "").find("no policy is named"), std::string::npos);
  EXPECT_EQ(error_of(trace, "liveness+"), "policy 'liveness+': a pass is missing after +");
  EXPECT_EQ(error_of(trace, "+liveness"), "policy '+liveness': a pass is missing before +");
  EXPECT_EQ(error_of(trace, "a/"), error_of(trace, "a"));  // the first fault is told first
  EXPECT_EQ(error_of(trace, "liveness/"), "policy 'liveness/': an alternative is missing after /");
  EXPECT_EQ(error_of(trace, "liveness:speed=3"),
            "policy liveness: unknown option 'speed' (it has frees)");
  EXPECT_EQ(error_of(trace, "liveness:speed"),
            "policy liveness: 'speed' is no option (write key=value)");
}

TEST(Request, PassesThatStartOverMustComeFirst) {
  const Trace trace = mini(kShort);
  for (const char* policy : {"liveness+keep_all", "liveness+recorded"})
    EXPECT_NE(error_of(trace, policy).find("cannot follow a pass that changed the plan"),
              std::string::npos);
}

TEST(Request, UnknownAllocatorIsExplained) {
  PlanRequest request = request_for("liveness", 1_GiB);
  request.allocator = "first_fitt";
  const Result<Plan> plan = plan_for(mini(kShort), request);
  ASSERT_FALSE(plan);
  EXPECT_TRUE(plan.error().message.starts_with(
      "unknown allocator 'first_fitt' (did you mean first_fit? there are first_fit, "))
      << plan.error().message;
}

TEST(Request, StopTokenCancels) {
  const std::atomic<bool> stop{true};
  PlanRequest request = request_for("liveness", 1_GiB);
  request.stop = &stop;
  const Result<Plan> plan = plan_for(mini(kShort), request);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::cancelled);
}

TEST(Request, BelowTheFloorTellsTheFloorAndWhoSetsIt) {
  const Trace trace = mini(kShort);
  const Result<Plan> plan = plan_for(trace, request_for("liveness", 8_KiB));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::does_not_fit);
  ASSERT_TRUE(plan.error().shortage);
  EXPECT_EQ(plan.error().shortage->smallest_budget, 16_KiB);
  EXPECT_EQ(plan.error().shortage->op, "b");
}

}  // namespace
}  // namespace superneurons
