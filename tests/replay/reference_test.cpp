// The reference of a replay where memory is short, what is compared, and the measured peak.
#include "replay/reference.h"

#include <gtest/gtest.h>

#include "ir/check.h"
#include "memory/allocator.h"
#include "memory/placement.h"
#include "tests/check/mini_plan.h"
#include "tests/mini_trace.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

constexpr ReplayOptions kVerify{.kernels = KernelSet::verify, .training_steps = 3};

constexpr std::string_view kNet = R"(
  tensor x 4K input carry
  tensor w 2K parameter carry
  tensor a 8K activation
  tensor b 8K activation
  tensor c 8K activation
  tensor d 2K gradient
  op f1 forward : x w -> a
  op f2 forward : a -> b ws=1K | ws=0
  op f3 forward : b -> c
  op b3 backward : c -> c
  op b2 backward : a c -> d
  op u update once : w d -> w
)";

TEST(Reference, each_rung_needs_less_and_ends_with_the_same_bits) {
  const Trace trace = mini(kNet);
  const std::vector<Plan> ladder = reference_ladder(trace, keep_all_plan(trace));
  ASSERT_EQ(ladder.size(), 3U);
  EXPECT_LT(ladder[1].budget.device, ladder[0].budget.device);
  EXPECT_LT(ladder[2].budget.device, ladder[1].budget.device);
  const auto first = run_plan(trace, ladder[0], kVerify);
  ASSERT_TRUE(first) << first.error().message;
  for (const Plan& rung : ladder) {
    const auto run = run_plan(trace, rung, kVerify);
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(difference(trace, first->checksums, run->checksums), "");
  }
}

TEST(Reference, rungs_of_random_traces_are_lawful_and_take_the_choices_of_the_plan) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const Trace trace = random_trace(seed);
    const Plan plan = random_lawful_plan(trace, seed);
    for (const Plan& rung : reference_ladder(trace, plan)) {
      const auto violation = check(trace, rung);
      ASSERT_FALSE(violation) << "seed " << seed << ", " << rung.policy << ": "
                              << to_error(*violation).message;
      std::vector<std::uint32_t> choice_of(trace.ops.size(), 0);
      for (const PlanStep& step : plan.steps)
        if (step.kind == StepKind::run) choice_of[step.subject] = step.choice;
      for (const PlanStep& step : rung.steps) {
        if (step.kind != StepKind::run) continue;
        ASSERT_EQ(step.choice, choice_of[step.subject]) << "seed " << seed;
      }
    }
  }
}

TEST(Reference, is_the_largest_that_fits) {
  const Trace trace = mini(kNet);
  const Plan plan = keep_all_plan(trace);
  const std::vector<Plan> ladder = reference_ladder(trace, plan);
  for (const Plan& rung : ladder) {
    const auto reference = run_reference(trace, plan, kVerify, rung.budget.device);
    ASSERT_TRUE(reference) << reference.error().message;
    EXPECT_EQ(reference->plan.policy, rung.policy);
    EXPECT_FALSE(reference->run.checksums.values.empty());
  }
  const auto none = run_reference(trace, plan, kVerify, ladder[2].budget.device - 1_B);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::does_not_fit);
}

TEST(Compared, without_state_is_what_the_next_training_step_needs) {
  const Trace trace = mini(R"(
    tensor x 4K input carry
    tensor s 2K temporary carry
    tensor unread 2K temporary carry
    op f forward : x s -> s
    op g forward : x -> unread
  )");
  const auto run = run_plan(trace, reference_plan(trace, keep_all_plan(trace)), kVerify);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(run->checksums.tensors.size(), 2U);  // x, s
  EXPECT_EQ(trace[run->checksums.tensors[1]].name, "s");
}

TEST(Compared, may_be_nothing) {
  const Trace trace = mini(R"(
    tensor x 4K activation
    op f forward : -> x
  )");
  const auto run = run_plan(trace, reference_plan(trace, keep_all_plan(trace)), kVerify);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_TRUE(run->checksums.values.empty());
}

TEST(MeasuredPeak, counts_whole_tensors_of_which_only_a_part_is_accessed) {
  const Trace trace = mini(R"(
    tensor x 4K input carry
    tensor y 64K activation
    op f forward : x -> y[0:16]
    op g forward : y[0:16] -> x
  )");
  for (const AllocatorEntry& entry : allocators()) {
    Plan plan = keep_all_plan(trace);
    plan.allocator = entry.name;
    plan.budget.device = *smallest_arena(trace, plan);
    const auto placement = place(trace, plan, plan.budget.device);
    ASSERT_TRUE(placement);
    const auto run = run_plan(trace, plan, kVerify);
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(run->measured.peak, placement->used_peak) << entry.name;
    if (entry.name != "pytorch_caching") EXPECT_EQ(placement->used_peak, placement->placed_peak);
    else EXPECT_LT(placement->used_peak, placement->placed_peak);
  }
}

}  // namespace
}  // namespace superneurons
