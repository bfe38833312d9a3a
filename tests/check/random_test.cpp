// The random traces and plans that other tests build on are what they claim to be.
#include <gtest/gtest.h>

#include <set>

#include "ir/check.h"
#include "memory/placement.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

TEST(RandomTraces, have_no_fault_and_keep_all_is_lawful) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Trace trace = random_trace(seed);
    const auto fault = find_fault(trace);
    ASSERT_FALSE(fault) << seed << ": " << fault->message;
    Plan plan = keep_all_plan(trace);
    plan.budget = {1_GiB, 0_B};
    const auto broken = check(trace, plan);
    ASSERT_FALSE(broken) << seed << ": " << to_error(*broken).message;
  }
}

TEST(RandomTraces, one_seed_gives_one_trace) {
  EXPECT_EQ(keep_all_plan(random_trace(7)).trace_hash, keep_all_plan(random_trace(7)).trace_hash);
  EXPECT_NE(keep_all_plan(random_trace(7)).trace_hash, keep_all_plan(random_trace(8)).trace_hash);
}

TEST(RandomPlans, are_lawful_and_not_a_byte_smaller) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Trace trace = random_trace(seed);
    Plan plan = random_lawful_plan(trace, seed);
    const auto broken = check(trace, plan);
    ASSERT_FALSE(broken) << seed << ": " << to_error(*broken).message;
    plan.budget.device -= 1_B;
    ASSERT_TRUE(check(trace, plan)) << seed;
    EXPECT_EQ(check(trace, plan)->law, Law::over_budget);
  }
}

TEST(RandomPlans, place_with_a_live_peak_of_the_smallest_budget_that_is_lawful) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Trace trace = random_trace(seed);
    Plan plan = random_lawful_plan(trace, seed);
    const Bytes smallest = plan.budget.device;
    plan.budget = {1_GiB, 1_GiB};  // room for rounding and holes
    const Result<Placement> placement = place(trace, plan, plan.budget.device);
    ASSERT_TRUE(placement) << seed << ": " << placement.error().message;
    EXPECT_EQ(placement->live_peak.count, smallest.count) << seed;
  }
}

TEST(RandomPlans, use_every_freedom) {
  std::array<int, kStepKindNames.size()> kinds{};
  int reruns = 0, discards = 0, host_begins = 0, other_choices = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Trace trace = random_trace(seed);
    const Plan plan = random_lawful_plan(trace, seed);
    std::set<std::uint32_t> ran;
    for (const PlanStep& step : plan.steps) {
      ++kinds[static_cast<std::size_t>(step.kind)];
      if (step.kind != StepKind::run) continue;
      reruns += !ran.insert(step.subject).second;
      discards += !step.discard.empty();
      other_choices += step.choice != trace[step.op()].recorded;
    }
    for (const Begin& begin : plan.begin) host_begins += begin.place == Place::host;
  }
  for (const int kind : kinds) EXPECT_GT(kind, 100);
  EXPECT_GT(reruns, 100);
  EXPECT_GT(discards, 30);
  EXPECT_GT(host_begins, 30);
  EXPECT_GT(other_choices, 100);
}

}  // namespace
}  // namespace superneurons
