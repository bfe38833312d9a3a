// Alternatives of a request, and the quick answers that searches ask for.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "memory/footprints.h"
#include "memory/placement.h"
#include "simulator/outcome.h"
#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

/// Plans that move, drop, discard and lend, and one that nothing places.
std::vector<Plan> plans_of(const Trace& trace) {
  std::vector<Plan> plans;
  for (const char* policy : {"keep_all", "liveness", "liveness+recompute:need=all",
                             "liveness+offload:layers=all,need=all,free=early",
                             "liveness+recompute:need=all+offload:need=all",
                             "liveness+offload_state:roles=all,need=all"})
    if (Result<Plan> plan = plan_for(trace, request_for(policy, {1LL << 50}, {1LL << 50})))
      plans.push_back(*std::move(plan));
  Plan unlawful = plans.back();
  unlawful.steps.insert(unlawful.steps.begin(), tensor_step(StepKind::prefetch, {0}));
  plans.push_back(std::move(unlawful));
  return plans;
}

TEST(Footprints, GiveTheAnswersOfPlacement) {
  std::vector<NamedTrace> traces = policy_traces();
  traces.push_back({"layered", layered_trace(12)});
  for (const auto& [name, trace] : traces) {
    const Footprints footprints(trace);
    for (Plan plan : plans_of(trace))
      for (const AllocatorEntry& allocator : allocators()) {
        plan.allocator = allocator.name;
        const Result<Bytes> arena = smallest_arena(trace, plan);
        const std::optional<Bytes> same = footprints.smallest_arena(plan);
        ASSERT_EQ(static_cast<bool>(arena), same.has_value()) << name << plan.allocator;
        if (!arena) {
          EXPECT_FALSE(footprints.fits(plan, {1LL << 60})) << name << plan.allocator;
          continue;
        }
        EXPECT_EQ(*arena, *same) << name << plan.allocator;
        for (const Bytes room : {*arena - kAllocationUnit, *arena, *arena + kAllocationUnit * 7}) {
          EXPECT_EQ(fits(trace, plan, room), footprints.fits(plan, room)) << name;
          const Result<std::vector<Bytes>> rooms = workspace_rooms(trace, plan, room);
          const std::optional<std::vector<Bytes>> quick = footprints.workspace_rooms(plan, room);
          ASSERT_EQ(static_cast<bool>(rooms), quick.has_value()) << name << plan.allocator;
          if (!rooms) continue;
          EXPECT_EQ(*rooms, *quick) << name << plan.allocator;
        }
        plan.budget.host = 1_KiB;
        EXPECT_EQ(fits(trace, plan, *arena), footprints.fits(plan, *arena)) << name;
        plan.budget.host = {1LL << 50};
      }
  }
}

struct Recorded {
  Trace trace = *read_trace(SUPERNEURONS_SOURCE_DIR "/traces/vgg16-b64.jsonl.gz");
  DeviceProfile profile = *read_profile(SUPERNEURONS_SOURCE_DIR "/traces/profiles/h200.json");
  Predict predict = predictor(trace, profile);
  Bytes peak = *smallest_arena(
      trace, *make_plan(trace, profile, request_for("liveness", {1LL << 50}), predict));

  Result<Plan> plan(const std::string& policy, int percent, bool explain = false) const {
    PlanRequest request = request_for(policy, peak * percent, 64_GiB);
    request.budget.device.count /= 100;
    request.explain = explain;
    request.seek_floor = false;
    return make_plan(trace, profile, request, predict);
  }
};

TEST(Alternatives, SharedPassesChangeNothing) {
  const Recorded on;
  const std::vector<std::string> each = {
      "liveness+workspace:grant=alone+recompute+tensor_cache+workspace",
      "liveness+workspace:grant=alone+recompute",
      "liveness+workspace:grant=alone+recompute+offload+workspace", "liveness"};
  std::string all;
  for (const std::string& one : each) all += (all.empty() ? "" : "/") + one;
  for (const int percent : {100, 70, 50}) {
    std::optional<Nanoseconds> fastest;
    std::optional<Plan> expected;
    for (const std::string& one : each) {
      const Result<Plan> plan = on.plan(one, percent);
      if (!plan) continue;
      const Nanoseconds time = on.predict(*plan)->step_ns;
      if (fastest && time >= *fastest) continue;
      fastest = time;
      expected = *plan;
    }
    const Result<Plan> plan = on.plan(all, percent);
    ASSERT_TRUE(plan && expected) << percent;
    EXPECT_EQ(plan->steps, expected->steps) << percent;
  }
}

TEST(Alternatives, TheBestCompositionIsNeverSlowerThanAnother) {
  const Recorded on;
  for (const int percent : {90, 70, 50, 40}) {
    const Result<Plan> best = on.plan("superneurons_best", percent);
    ASSERT_TRUE(best) << percent;
    const Nanoseconds time = on.predict(*best)->step_ns;
    for (const CompositionEntry& other : compositions()) {
      const Result<Plan> plan = on.plan(std::string(other.name), percent);
      if (!plan) continue;
      EXPECT_LE(time, on.predict(*plan)->step_ns) << other.name << " at " << percent;
    }
  }
}

TEST(Alternatives, AReasonSaysWhichWonAndByHowMuch) {
  const Recorded on;
  const Result<Plan> plan = on.plan("liveness+workspace/liveness+workspace:limit=64MiB", 100, true);
  ASSERT_TRUE(plan);
  ASSERT_FALSE(plan->reasons.empty());
  const std::string& why = plan->reasons.front().text;
  EXPECT_EQ(why.find("liveness+workspace is the best of 2 alternatives: it is predicted to take"),
            0U)
      << why;
  EXPECT_NE(why.find("the next is liveness+workspace:limit=64MiB with"), std::string::npos) << why;
  const Result<Plan> alone = on.plan("liveness", 100, true);
  ASSERT_TRUE(alone);
  EXPECT_EQ(alone->reasons.front().text.find("alternatives"), std::string::npos);
}

}  // namespace
}  // namespace superneurons
