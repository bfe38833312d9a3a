// Surrogate replays on the host: lawful plans agree to the bit with keeping everything, and broken
// ones are found out.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "memory/allocator.h"
#include "memory/placement.h"
#include "replay/reference.h"
#include "replay/replay.h"
#include "tests/check/mini_plan.h"
#include "tests/mini_trace.h"

namespace superneurons {
namespace {

using Ran = Result<Run>;  // inside a test, Run is googletest's

/// Two layers, in-place activation, a random op with a mask, running statistics, an update, and a
/// state that moves to a new storage every step. All sizes odd on purpose.
constexpr std::string_view kNet = R"(
  tensor x 3001 input carry
  tensor w 1001 parameter carry
  tensor stats 36 buffer carry
  tensor old 777 optimizer_state
  tensor new 777 optimizer_state
  carry new old
  tensor half 777 temporary
  tensor y 3003 activation
  tensor m 750 saved
  tensor z 2500 activation
  tensor g 1001 gradient
  op conv forward : x w -> y ws=4K
  op relu forward : y -> y
  op norm forward fixed=stats : y stats -> z stats
  op drop forward random : z -> z m
  op back backward : z y[5:1999] m -> g
  op more backward : y g -> g[1:1000]
  op fade update : old g -> half
  op move update : half -> new
  op step update once : w g -> w
)";

ReplayOptions verify(bool stress = false, bool guards = false) {
  ReplayOptions options;
  options.kernels = KernelSet::verify;
  options.stress = stress;
  options.guards = guards;
  return options;
}

/// "" if both ran and agree, else what is wrong.
std::string compare(const Trace& trace, const Plan& plan, const ReplayOptions& options) {
  const Ran reference = run_plan(trace, reference_plan(trace, plan), verify());
  if (!reference) return "reference: " + reference.error().message;
  const Ran run = run_unchecked_plan(trace, plan, options);
  if (!run) return run.error().message;
  return difference(trace, reference->checksums, run->checksums);
}

/// It ran and its results are others.
bool differs(const Trace& trace, const Plan& plan) {
  return compare(trace, plan, verify()).find("where the reference has") != std::string::npos;
}

/// Everything at once: offload, recompute with scratch, host homes, a storage that moves.
Plan thrifty_plan(const Trace& trace) {
  return mini_plan(trace, R"(
    budget 16384 host 32768
    begin w host
    begin old host
    prefetch w
    run conv
    offload w
    run relu
    run norm
    free w
    run drop
    offload m
    free m
    free y
    free z
    prefetch w
    run conv
    run relu
    run norm
    run drop discard m
    prefetch m
    run back
    free m
    free_host m
    free z
    run more
    free y
    prefetch old
    free_host old
    run fade
    free old
    run move
    free half
    offload new
    free new
    free_host w
    run step
    offload w
    free g
    free w
  )");
}

TEST(Surrogate, everything_kept_equals_itself) {
  const Trace trace = mini(kNet);
  const Plan plan = keep_all_plan(trace);
  const Ran run = run_plan(trace, reference_plan(trace, plan), verify());
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(run->checksums.tensors.size(), 3U);  // w, stats, new
  EXPECT_EQ(run->measured.steps.size(), 3U);
  EXPECT_TRUE(run->losses.empty());
}

TEST(Surrogate, offloads_and_recomputation_change_no_bit) {
  const Trace trace = mini(kNet);
  const Plan plan = thrifty_plan(trace);
  const Ran run = run_plan(trace, plan, verify());
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(compare(trace, plan, verify()), "");
}

TEST(Surrogate, twenty_seeds_of_random_delays_and_poison_change_no_bit) {
  const Trace trace = mini(kNet);
  const Plan plan = thrifty_plan(trace);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ReplayOptions calm = verify(), stressed = verify(true);
    calm.seed = stressed.seed = seed;
    const Ran reference = run_plan(trace, reference_plan(trace, plan), calm);
    const Ran run = run_plan(trace, plan, stressed);
    ASSERT_TRUE(reference && run);
    EXPECT_EQ(difference(trace, reference->checksums, run->checksums), "") << "seed " << seed;
  }
}

TEST(Surrogate, guards_are_intact_and_change_no_bit) {
  const Trace trace = mini(kNet);
  EXPECT_EQ(compare(trace, thrifty_plan(trace), verify(false, true)), "");
  EXPECT_EQ(compare(trace, thrifty_plan(trace), verify(true, true)), "");
}

TEST(Surrogate, seeds_and_training_steps_count) {
  const Trace trace = mini(kNet);
  const Plan plan = reference_plan(trace, keep_all_plan(trace));
  const Ran first = run_plan(trace, plan, verify());
  ReplayOptions seeded = verify();
  seeded.seed = 2;
  const Ran second = run_plan(trace, plan, seeded);
  ReplayOptions longer = verify();
  longer.training_steps = 4;
  const Ran third = run_plan(trace, plan, longer);
  ASSERT_TRUE(first && second && third);
  EXPECT_NE(difference(trace, first->checksums, second->checksums), "");
  EXPECT_NE(difference(trace, first->checksums, third->checksums), "");
}

TEST(Surrogate, lost_and_stale_values_are_found_out) {
  const Trace trace = mini(kNet);
  const std::string tail =
      "run more\nrun fade\nfree old\nrun move\nfree half\nrun step\nfree g\nfree y\nfree z\nfree "
      "m\n";
  const std::string head = "run conv\nrun relu\nrun norm\nrun drop\n";
  // relu runs twice on its own result.
  EXPECT_TRUE(differs(trace, mini_plan(trace, head + "run relu\nrun back\n" + tail)));
  // y is brought back from before relu wrote it anew: the copy is stale.
  EXPECT_TRUE(differs(trace, mini_plan(trace,
                                       "run conv\noffload y\nrun relu\nrun norm\nrun drop\nfree y\n"
                                       "prefetch y\nfree_host y\nrun back\n" +
                                           tail)));
  // Dropout runs twice on its own result.
  EXPECT_TRUE(differs(trace, mini_plan(trace, head + "run drop\nrun back\n" + tail)));
  EXPECT_EQ(compare(trace, mini_plan(trace, head + "run back\n" + tail), verify()), "");
}

TEST(Surrogate, running_statistics_move_once_however_often_the_op_runs) {
  const Trace trace = mini(R"(
    tensor stats 64 buffer carry
    tensor w 64 parameter carry
    tensor y 64 activation
    op norm forward fixed=stats : w stats -> y stats
    op step update once : w y -> w
  )");
  const Plan plan = mini_plan(trace, "run norm\nfree y\nrun norm\nrun step\nfree y\n");
  EXPECT_EQ(compare(trace, plan, verify()), "");
}

TEST(Surrogate, bytes_that_nobody_wrote_do_not_count) {
  const Trace trace = mini(R"(
    tensor w 64 parameter carry
    tensor part 4K temporary
    tensor pad 4K temporary
    op some forward : w -> part[10:21]
    op other forward : part -> pad
    op step update once : w part pad -> w
  )");
  const Plan plan = mini_plan(trace, "run some\nrun other\nrun step\nfree pad\nfree part\n");
  EXPECT_EQ(compare(trace, plan, verify(true)), "");
  EXPECT_EQ(compare(trace, plan, verify(false, true)), "");
}

TEST(Surrogate, outputs_that_a_choice_omits_are_left_out) {
  Trace trace = mini(R"(
    tensor w 64 parameter carry
    tensor y 4K activation
    tensor mask 4K saved
    op conv forward : w -> y mask | @5
    op step update once : w y -> w
  )");
  trace.ops[0].choices[1].omits = {{2}};
  const Plan plan = mini_plan(trace, "run conv 1\nrun step\nfree y\n");
  EXPECT_EQ(compare(trace, plan, verify()), "");
}

TEST(Surrogate, timed_kernels_take_the_recorded_time) {
  const Trace trace = mini(R"(
    tensor w 64K parameter carry
    op long forward : w -> w @3000000
    op more forward : w -> w @2000000
  )");
  ReplayOptions options = verify();
  options.kernels = KernelSet::timed;
  options.training_steps = 2;
  options.keep_spans = true;
  const Plan plan = reference_plan(trace, keep_all_plan(trace));
  const Ran run = run_plan(trace, plan, options);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(run->measured.steps.size(), 2U);
  for (const Nanoseconds ns : run->measured.steps) EXPECT_GE(ns.count, 5000000);
  ASSERT_EQ(run->measured.spans.size(), 2U);
  EXPECT_GE((run->measured.spans[0].end - run->measured.spans[0].start).count, 3000000);
  EXPECT_GE(run->measured.spans[1].start, run->measured.spans[0].end);
}

TEST(Surrogate, no_training_step_is_shorter_than_its_work_however_busy_the_machine_is) {
  const Trace trace = mini(R"(
    tensor w 64K parameter carry
    op only forward : w -> w @300000
  )");
  ReplayOptions options = verify();
  options.kernels = KernelSet::timed;
  options.training_steps = 300;
  std::atomic<bool> done = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 2 * std::thread::hardware_concurrency() + 1; ++i)
    others.emplace_back([&done] {
      while (!done) std::this_thread::yield();
    });
  const Ran run = run_plan(trace, reference_plan(trace, keep_all_plan(trace)), options);
  done = true;
  for (std::thread& other : others) other.join();
  ASSERT_TRUE(run) << run.error().message;
  for (const Nanoseconds ns : run->measured.steps) EXPECT_GE(ns.count, 300000);
}

TEST(Arena, is_exactly_the_budget) {
  const Trace trace = mini(kNet);
  Plan plan = thrifty_plan(trace);
  const Result<Bytes> smallest = smallest_arena(trace, plan);
  ASSERT_TRUE(smallest);
  plan.budget.device = *smallest;
  const Ran run = run_plan(trace, plan, verify());
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->measured.peak, *smallest);
  EXPECT_EQ(run->measured.outside, 0_B);
  const Result<Placement> placement = place(trace, plan, *smallest);
  ASSERT_TRUE(placement);
  EXPECT_EQ(run->measured.host_peak, placement->host_peak);

  plan.budget.device -= kAllocationUnit;
  const Ran refused = run_unchecked_plan(trace, plan, verify());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
}

TEST(Arena, larger_than_the_machine_is_an_answer) {
  const Trace trace = mini(kNet);
  Plan plan = thrifty_plan(trace);
  plan.budget.device = Bytes{std::int64_t{1} << 60};
  const Ran run = run_plan(trace, plan, verify());
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::does_not_fit);
}

TEST(Stop, a_replay_is_cancelled) {
  const Trace trace = mini(kNet);
  const std::atomic<bool> stop = true;
  ReplayOptions options = verify();
  options.stop = &stop;
  const Ran run = run_plan(trace, thrifty_plan(trace), options);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace superneurons
