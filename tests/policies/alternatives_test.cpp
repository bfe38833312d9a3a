// Alternatives of a request, and the quick answers that searches ask for.
#include <gtest/gtest.h>

#include <algorithm>

#include "memory/assignment.h"
#include "memory/footprints.h"
#include "memory/placement.h"
#include "memory/schedule.h"
#include "tests/cases.h"
#include "tests/policies/recorded.h"

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

TEST(Footprints, NameTheStepThatFindsNoRoom) {
  int stuck_steps = 0;
  for (const auto& [name, trace] : policy_traces()) {
    const Footprints footprints(trace);
    for (Plan plan : plans_of(trace))
      for (const AllocatorEntry& allocator : allocators()) {
        plan.allocator = allocator.name;
        const Result<Bytes> arena = smallest_arena(trace, plan);
        if (!arena) continue;
        EXPECT_FALSE(footprints.first_stuck(plan, *arena)) << name << plan.allocator;
        for (const Bytes room : {*arena - kAllocationUnit, Bytes{arena->count / 2}}) {
          const Schedule wanted = schedule(trace, plan);
          const Assignment found = assign(wanted, allocator, room, plan.budget.host, 0_B);
          const std::optional<Footprints::Stuck> stuck = footprints.first_stuck(plan, room);
          ASSERT_EQ(found.misfit.has_value(), stuck.has_value()) << name << plan.allocator;
          if (!stuck) continue;
          const Request& request = wanted.requests[found.misfit->request];
          EXPECT_EQ(stuck->step, request.step) << name << plan.allocator;
          EXPECT_EQ(stuck->space, request.allocation.space) << name << plan.allocator;
          stuck_steps += request.step > 0 ? 1 : 0;
        }
      }
  }
  EXPECT_GT(stuck_steps, 0);
}

TEST(Alternatives, SharedPassesChangeNothing) {
  const Recorded on("vgg16-b64");
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

void expect_best_of_all(const Recorded& on, std::initializer_list<int> percents) {
  for (const int percent : percents) {
    const Result<Plan> best = on.plan("superneurons_best", percent);
    for (const CompositionEntry& other : compositions()) {
      const Result<Plan> plan = on.plan(std::string(other.name), percent);
      if (!plan) continue;
      ASSERT_TRUE(best) << other.name << " fits at " << percent;
      EXPECT_LE(on.time(*best), on.time(*plan)) << other.name << " at " << percent;
    }
  }
}

TEST(Alternatives, TheBestCompositionIsNeverSlowerThanAnother) {
  expect_best_of_all(Recorded("vgg16-b64"), {90, 70, 50, 40});
  expect_best_of_all(Recorded("alexnet-b128"), {90, 75, 60});
  if (kSanitized) return;  // takes ten times as long there, and is no other code
  expect_best_of_all(Recorded("resnet50-b64"), {85, 40});
  // Where plain liveness_offload beats all of SuperNeurons.
  expect_best_of_all(Recorded("resnet50-b64", "k40c-12gb"), {75});
}

TEST(Alternatives, TheBestCompositionIsNoSlowerWithMoreMemory) {
  for (const char* name : {"alexnet-b128", "resnet50-b64"}) {
    const Recorded on(name);
    std::optional<Nanoseconds> before;
    for (const int percent : some_of<int>({25, 40, 60, 80, 90, 100})) {
      const Result<Plan> plan = on.plan("superneurons_best", percent);
      if (!plan) continue;
      if (before) {
        EXPECT_LE(on.time(*plan), *before) << name << " at " << percent;
      }
      before = on.time(*plan);
    }
    EXPECT_TRUE(before);
  }
}

TEST(Alternatives, AReasonSaysWhichWonAndByHowMuch) {
  const Recorded on("vgg16-b64");
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
