// What the pass `workspace` grants, and what the compositions of SuperNeurons keep on recorded
// traces.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/choices.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "memory/allocator.h"
#include "memory/placement.h"
#include "simulator/outcome.h"
#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

// While `conv` runs x and y are there, 8 KiB; while `grad` runs so is z.
const char* kTwo = R"(
  tensor x 4K input carry
  tensor y 4K activation
  tensor z 4K temporary
  op conv forward : x -> y @100 | @10 ws=16K | @30 ws=4K | @20 ws=12K
  op grad backward : y x -> z @100 | @10 ws=16K | @30 ws=4K
)";

std::uint32_t choice_of(const Trace& trace, const Plan& plan, const std::string& op) {
  std::uint32_t choice = 99;
  for (const PlanStep& step : plan.steps)
    if (step.kind == StepKind::run && trace[step.op()].name == op) choice = step.choice;
  return choice;
}

Plan good_plan(const Trace& trace, const std::string& policy, Bytes device) {
  const Result<Plan> plan = plan_for(trace, request_for(policy, device));
  EXPECT_TRUE(plan) << plan.error().message;
  return plan ? *plan : Plan{};
}

TEST(Workspace, EachOpTakesItsFastestChoiceThatFitsBesideWhatIsThere) {
  const Trace trace = mini(kTwo);
  const auto choices = [&](Bytes device) {
    const Plan plan = good_plan(trace, "liveness+workspace", device);
    return std::pair(choice_of(trace, plan, "conv"), choice_of(trace, plan, "grad"));
  };
  EXPECT_EQ(choices(1_MiB), std::pair(1U, 1U));
  EXPECT_EQ(choices(28_KiB), std::pair(1U, 1U));
  EXPECT_EQ(choices(27_KiB), std::pair(1U, 2U));  // 16 KiB are left beside three tensors: 15 KiB
  EXPECT_EQ(choices(23_KiB), std::pair(3U, 2U));
  EXPECT_EQ(choices(16_KiB), std::pair(2U, 2U));
  EXPECT_EQ(choices(15_KiB), std::pair(2U, 0U));
  EXPECT_EQ(choices(12_KiB), std::pair(2U, 0U));
  EXPECT_FALSE(plan_for(trace, request_for("liveness+workspace", 11_KiB)));
}

TEST(Workspace, IsGivenUpWhereTheRecordedOneDoesNotFit) {
  Trace trace = mini(kTwo);
  trace.ops[0].recorded = trace.ops[1].recorded = 1;
  EXPECT_EQ(peak_of(trace, "liveness"), 28_KiB);
  const Result<Plan> plan = plan_for(trace, request_for("liveness", 20_KiB));
  EXPECT_FALSE(plan);
  EXPECT_EQ(choice_of(trace, good_plan(trace, "liveness+workspace", 20_KiB), "conv"), 3U);
  const Result<Floor> floor =
      smallest_budget(trace, slow_link(), request_for("liveness+workspace", 1_MiB), {});
  ASSERT_TRUE(floor);
  EXPECT_EQ(floor->budget, 12_KiB);
}

TEST(Workspace, AllRunsOfAnOpTakeTheChoiceThatFitsTheTightest) {
  Trace trace = mini(R"(
    tensor x 4K input carry
    tensor w 16K parameter
    tensor y 4K activation
    tensor z 4K temporary
    op conv forward : x -> y @100 | @10 ws=16K | @30 ws=4K
    op make backward : x -> w @10
    op grad backward : y w -> z @10
  )");
  Plan plan = keep_all_plan(trace);
  // y is dropped and made again while w is there.
  const auto step = [&](StepKind kind, std::uint32_t tensor) {
    return tensor_step(kind, {tensor});
  };
  plan.steps = {run_step({0}, 0),        step(StepKind::free, 2), run_step({1}, 0),
                run_step({0}, 0),        run_step({2}, 0),        step(StepKind::free, 1),
                step(StepKind::free, 2), step(StepKind::free, 3)};
  const auto rooms = workspace_rooms(trace, plan, 30_KiB);
  ASSERT_TRUE(rooms) << rooms.error().message;
  EXPECT_EQ((*rooms)[0], 22_KiB);
  EXPECT_EQ((*rooms)[3], 6_KiB);
  const Dataflow flow = analyze(trace);
  const DeviceProfile profile = slow_link();
  const PolicyContext context{trace,
                              flow,
                              profile,
                              {30_KiB, 0_B},
                              {},
                              {{"grant", "room"},
                               {"of", "100%"},
                               {"limit", "none"},
                               {"deterministic", "yes"},
                               {"math", "recorded"}}};
  for (const PolicyEntry& entry : policies()) {
    if (entry.name != "workspace") continue;
    const Result<Plan> granted = entry.plan(context, plan);
    ASSERT_TRUE(granted);
    EXPECT_EQ(granted->steps[0].choice, 2U);
    EXPECT_EQ(granted->steps[3].choice, 2U);
  }
}

TEST(Workspace, OptionsLimitWhatMayBeTaken) {
  Trace trace = mini(kTwo);
  trace.ops[0].choices[1].deterministic = false;
  trace.ops[0].choices[3].math = "tf32";
  const auto choice = [&](const std::string& options) {
    return choice_of(trace, good_plan(trace, "liveness+workspace" + options, 1_MiB), "conv");
  };
  EXPECT_EQ(choice(""), 2U);
  EXPECT_EQ(choice(":deterministic=no"), 1U);
  EXPECT_EQ(choice(":math=any"), 3U);
  EXPECT_EQ(choice(":deterministic=no,math=any,limit=8KiB"), 2U);
  EXPECT_EQ(choice(":grant=least"), 0U);
  EXPECT_EQ(choice(":grant=alone,of=2%"), 2U);
  EXPECT_EQ(choice(":grant=alone,of=0%"), 0U);
  for (const char* bad : {"grant=most", "of=50", "of=101%", "of=-1%", "limit=much",
                          "deterministic=maybe", "math=fp8"}) {
    const Result<Plan> plan = plan_for(trace, request_for(std::string("workspace:") + bad, 1_MiB));
    ASSERT_FALSE(plan) << bad;
    EXPECT_EQ(plan.error().code, ErrorCode::bad_usage);
    EXPECT_NE(plan.error().message.find("it takes"), std::string::npos) << plan.error().message;
  }
}

TEST(Choices, UnmeasuredOnesComeLastAndOutputsStayTheSame) {
  Trace trace = mini(kTwo);
  Op& op = trace.ops[0];
  op.choices[1].ns = 0_ns;
  EXPECT_EQ(choices_by_speed(op), (std::vector<std::uint32_t>{3, 2, 0, 1}));
  op.choices[3].omits = {op.writes[0].tensor};
  EXPECT_EQ(choices_by_speed(op), (std::vector<std::uint32_t>{2, 0, 1}));
  for (Choice& choice : op.choices) choice.ns = 0_ns;
  op.recorded = 2;
  EXPECT_EQ(choices_by_speed(op).front(), 2U);
  for (Choice& choice : op.choices) choice.deterministic = false;
  EXPECT_EQ(choices_by_speed(op).size(), 3U);
  EXPECT_EQ(choices_by_speed(op, {.limit = 0_B}), (std::vector<std::uint32_t>{0}));
}

TEST(Alternatives, TheBestPlanIsTaken) {
  Trace trace = mini(kTwo);
  const DeviceProfile profile = slow_link();
  const auto time = [&](const std::string& policy) {
    const Predict predict = predictor(trace, profile);
    const Result<Plan> plan = make_plan(trace, profile, request_for(policy, 28_KiB), predict);
    return plan ? predict(*plan)->step_ns : 0_ns;
  };
  EXPECT_LT(time("liveness+workspace"), time("liveness"));
  EXPECT_EQ(time("liveness/liveness+workspace"), time("liveness+workspace"));
  EXPECT_EQ(time("liveness+workspace/liveness"), time("liveness+workspace"));
  trace.ops[0].recorded = 1;
  EXPECT_TRUE(plan_for(trace, request_for("liveness/liveness+workspace", 12_KiB)));
  EXPECT_FALSE(plan_for(trace, request_for("liveness/", 1_MiB)));
}

// ---- recorded traces ----

struct Recorded {
  Trace trace;
  DeviceProfile profile;
  Bytes peak{};  // of liveness
};

Recorded recorded(const std::string& name) {
  const std::string root = SUPERNEURONS_SOURCE_DIR "/traces/";
  Recorded result{*read_trace(root + name + ".jsonl.gz"),
                  *read_profile(root + "profiles/h200.json")};
  const Result<Plan> liveness = plan_for(result.trace, request_for("liveness", {1LL << 50}));
  EXPECT_TRUE(liveness);
  result.peak = *smallest_arena(result.trace, *liveness);
  return result;
}

Result<Plan> plan_for(const Recorded& on, const std::string& policy, Bytes device,
                      const std::string& allocator = "first_fit") {
  PlanRequest request = request_for(policy, device, 64_GiB);
  request.allocator = allocator;
  return make_plan(on.trace, on.profile, request, predictor(on.trace, on.profile));
}

/// Under every allocator no op could take a faster choice, or (where rooms are estimates) at least
/// the plan fits and is no slower than without workspaces.
TEST(Workspace, NothingFasterIsLeftOnARecordedTrace) {
  const Recorded on = recorded("alexnet-b128");
  for (const AllocatorEntry& allocator : allocators()) {
    const bool exact = allocator.name == "first_fit" || allocator.name == "best_fit";
    for (const int percent : {100, 85, 78}) {
      SCOPED_TRACE(std::string(allocator.name) + " at " + std::to_string(percent) + " %");
      const Result<Plan> plan = plan_for(on, "liveness+workspace", {on.peak.count * percent / 100},
                                         std::string(allocator.name));
      if (!plan && !exact) continue;  // fragments more than is left
      ASSERT_TRUE(plan) << plan.error().message;
      int lowered = 0;
      for (std::size_t i = 0; i < plan->steps.size(); ++i) {
        const PlanStep& step = plan->steps[i];
        if (step.kind != StepKind::run) continue;
        const Op& op = on.trace[step.op()];
        for (const std::uint32_t way : choices_by_speed(op)) {
          if (op.choices[way].ns >= op.choices[step.choice].ns) break;
          ++lowered;
          if (!exact) continue;
          Plan faster = *plan;
          faster.steps[i].choice = way;
          EXPECT_FALSE(place(on.trace, faster, plan->budget.device)) << op.name;
        }
      }
      if (exact && percent < 100) {
        EXPECT_GT(lowered, 0);
      }
    }
  }
}

const char* const kAblations[] = {"superneurons_no_cache", "superneurons_no_recompute",
                                  "superneurons_no_offload", "superneurons_no_workspace"};

class Superneurons : public testing::TestWithParam<const char*> {};

TEST_P(Superneurons, FitsWhereAnyAblationFitsAndCostsNothingWhereKeepAllFits) {
  const Recorded on = recorded(GetParam());
  const Predict predict = predictor(on.trace, on.profile);
  const Result<Plan> all = plan_for(on, "keep_all", 64_GiB);
  ASSERT_TRUE(all);
  const Bytes needs = *smallest_arena(on.trace, *all);
  for (const char* name : {"superneurons", "superneurons_best"}) {
    const Result<Plan> roomy = plan_for(on, name, needs);
    ASSERT_TRUE(roomy) << roomy.error().message;
    EXPECT_LE(predict(*roomy)->step_ns, predict(*all)->step_ns) << name;
  }
  for (const int percent : {80, 50, 35}) {
    const Bytes device{on.peak.count * percent / 100};
    const Result<Plan> plan = plan_for(on, "superneurons", device);
    const Result<Plan> best = plan_for(on, "superneurons_best", device);
    for (const char* ablation : kAblations) {
      const Result<Plan> without = plan_for(on, ablation, device);
      if (!without) continue;
      EXPECT_TRUE(plan && best) << ablation << " fits at " << percent << " %";
      if (best) {
        EXPECT_LE(predict(*best)->step_ns, predict(*without)->step_ns) << ablation;
      }
    }
    if (plan && best) {
      EXPECT_LE(predict(*best)->step_ns, predict(*plan)->step_ns);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, Superneurons, testing::Values("alexnet-b128", "resnet50-b64"),
                         [](const auto& row) {
                           std::string name = row.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace superneurons
