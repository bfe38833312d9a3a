#include "memory/placement.h"

#include <gtest/gtest.h>

#include "memory/allocator.h"
#include "tests/mini_trace.h"

namespace superneurons {
namespace {

TEST(WorkingSet, CountsWhatAChoiceOmitsOnlyIfTheOpReadsItToo) {
  Trace trace = mini(R"(
    tensor x 4K input carry
    tensor mask 2K saved
    tensor y 4K activation
    op first forward : x -> mask
    op op forward : x mask -> y mask ws=1K
    op other forward : x -> y mask
  )");
  for (const std::size_t op : {1, 2}) trace.ops[op].choices[0].omits = {TensorId{1}};
  EXPECT_EQ(working_set(trace, trace.ops[1], trace.ops[1].choices[0]), 11_KiB);
  EXPECT_EQ(working_set(trace, trace.ops[2], trace.ops[2].choices[0]), 8_KiB);
  OpId op;
  EXPECT_EQ(largest_working_set(trace, &op), 11_KiB);
  EXPECT_EQ(op.index, 1U);
}

TEST(Shortage, OfTheHostSpeaksOfTheHostAndTellsNoDeviceFloor) {
  const Trace trace = mini(R"(
    tensor x 4K input carry
    tensor y 8K activation
    op f forward : x -> y
    op g backward : y -> x
  )");
  Plan plan = keep_all_plan(trace);
  plan.budget.host = 4_KiB;
  plan.steps.insert(plan.steps.begin() + 1, tensor_step(StepKind::offload, TensorId{1}));
  const Result<Placement> placement = place(trace, plan, 1_MiB);
  ASSERT_FALSE(placement);
  const Error& error = placement.error();
  EXPECT_EQ(error.code, ErrorCode::does_not_fit);
  EXPECT_NE(error.message.find("needs 8 KiB of host memory"), std::string::npos) << error.message;
  EXPECT_EQ(error.shortage->smallest_budget, 0_B);
  EXPECT_EQ(error.shortage->short_by, 4_KiB);
}

constexpr StepKind kFree = StepKind::free;
constexpr StepKind kOffload = StepKind::offload;
constexpr StepKind kPrefetch = StepKind::prefetch;
constexpr StepKind kFreeHost = StepKind::free_host;

Plan plan_of(std::vector<Begin> begin, std::vector<PlanStep> steps) {
  Plan plan;
  plan.begin = std::move(begin);
  plan.steps = std::move(steps);
  plan.budget = {1_GiB, 1_GiB};
  return plan;
}

// Tensors 0 w, 1 x, 2 y, 3 z; ops 0 f, 1 g.
Trace small() {
  return mini(R"(
    tensor w 2K parameter carry
    tensor x 1K input carry
    tensor y 3K activation
    tensor z 1K activation_gradient
    op f forward : x w -> y @10 ws=2K
    op g backward : y -> z w @10
  )");
}

TEST(Placement, HomesComeFirstThenRunsWithTheirWorkspace) {
  const Plan plan = plan_of({{}, {}}, {run_step({0}, 0), run_step({1}, 0), tensor_step(kFree, {2}),
                                       tensor_step(kFree, {3})});
  const Result<Placement> placed = place(small(), plan, 1_MiB);
  ASSERT_TRUE(placed) << placed.error().message;
  //     wwxyyy##      op f: # is its workspace
  //     wwxyyyz.      op g
  ASSERT_EQ(placed->homes.size(), 2U);
  EXPECT_EQ(placed->homes[0].range.offset, 0_B);
  EXPECT_EQ(placed->homes[1].range.offset, 2_KiB);
  ASSERT_EQ(placed->allocations.size(), 3U);
  EXPECT_EQ(placed->allocations[0].tensor, TensorId{2});
  EXPECT_EQ(placed->allocations[0].range.offset, 3_KiB);
  EXPECT_EQ(placed->allocations[1].use, Use::workspace);
  EXPECT_EQ(placed->allocations[1].range.offset, 6_KiB);
  EXPECT_EQ(placed->allocations[2].range.offset, 6_KiB);
  EXPECT_EQ(placed->first, (std::vector<std::uint32_t>{0, 2, 3, 3, 3}));
  EXPECT_EQ(placed->live_peak, 8_KiB);
  EXPECT_EQ(placed->live_peak_step, 0U);
  EXPECT_EQ(placed->placed_peak, 8_KiB);
  EXPECT_EQ(placed->host_peak, 0_B);
}

TEST(Placement, ArenaOneUnitTooSmallNamesTheOpAndWhatIsMissing) {
  const Plan plan = plan_of({{}, {}}, {run_step({0}, 0), run_step({1}, 0)});
  EXPECT_TRUE(place(small(), plan, 8_KiB));
  const Result<Placement> refused = place(small(), plan, 7_KiB);
  ASSERT_FALSE(refused);
  const Error& error = refused.error();
  EXPECT_EQ(error.code, ErrorCode::does_not_fit);
  EXPECT_NE(error.message.find("op f (plan step 0) needs"), std::string::npos) << error.message;
  ASSERT_TRUE(error.shortage);
  EXPECT_EQ(error.shortage->short_by, 1_KiB);
  EXPECT_EQ(error.shortage->largest_hole, 1_KiB);
  EXPECT_EQ(error.shortage->smallest_budget, 8_KiB);
  EXPECT_EQ(error.shortage->op, "f");
}

TEST(Placement, AFreedHomeStaysReservedAndIsGoneBackTo) {
  const Plan plan = plan_of({{}, {}}, {tensor_step(kOffload, {0}), tensor_step(kFree, {0}),
                                       tensor_step(kPrefetch, {0}), run_step({0}, 0)});
  const Result<Placement> placed = place(small(), plan, 1_MiB);
  ASSERT_TRUE(placed) << placed.error().message;
  ASSERT_EQ(placed->allocations.size(), 4U);
  EXPECT_EQ(placed->allocations[0].space, Space::host);
  EXPECT_EQ(placed->allocations[1].range.offset, placed->homes[0].range.offset);
  EXPECT_EQ(placed->allocations[2].range.offset, 3_KiB);
  EXPECT_EQ(placed->host_peak, 2_KiB);
  EXPECT_EQ(residency(small(), plan)[1].total, 3_KiB) << "a home counts while it is empty";
}

TEST(Placement, AHostHomeIsGoneBackTo) {
  const Plan plan = plan_of(
      {{Place::host}, {Place::host}},
      {tensor_step(kPrefetch, {0}), tensor_step(kPrefetch, {1}), run_step({0}, 0),
       tensor_step(kFreeHost, {0}), tensor_step(kOffload, {2}), tensor_step(kOffload, {0})});
  const Result<Placement> placed = place(small(), plan, 1_MiB);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->homes[0].space, Space::host);
  ASSERT_EQ(placed->allocations.size(), 6U);
  EXPECT_EQ(placed->allocations[4].range.offset, 3_KiB) << "y may not take the home of w";
  EXPECT_EQ(placed->allocations[5].range.offset, 0_B);
  EXPECT_EQ(placed->host_peak, 6_KiB);
}

TEST(Placement, TheHostPoolIsCapped) {
  Plan plan = plan_of({{}, {}}, {run_step({0}, 0), tensor_step(kOffload, {2})});
  plan.budget.host = 2_KiB;
  const Result<Placement> refused = place(small(), plan, 1_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
  EXPECT_NE(refused.error().message.find("of host memory"), std::string::npos);
  plan.budget.host = 3_KiB;
  EXPECT_TRUE(place(small(), plan, 1_MiB));
}

// Tensors 0 old, 1 new: a gradient that is a new storage every step.
Trace moving() {
  return mini(R"(
    tensor old 2K gradient
    tensor new 2K gradient
    tensor y 1K activation
    carry new old
    op use forward : old -> y @10
    op make backward : y -> new @10
  )");
}

TEST(Placement, TheEndOfACarryTakesOverTheHomeOfItsStart) {
  const Plan plan = plan_of(
      {{}}, {run_step({0}, 0), tensor_step(kFree, {0}), run_step({1}, 0), tensor_step(kFree, {2})});
  const Result<Placement> placed = place(moving(), plan, 3_KiB);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->allocations[1].tensor, TensorId{1});
  EXPECT_EQ(placed->allocations[1].range.offset, placed->homes[0].range.offset);
  EXPECT_EQ(placed->live_peak, 3_KiB);
}

TEST(Placement, TwoTensorsInOneHomeAreRefused) {
  const Plan plan = plan_of({{}}, {run_step({0}, 0), run_step({1}, 0)});
  const Result<Placement> refused = place(moving(), plan, 1_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unlawful);
  EXPECT_NE(refused.error().message.find("'new'"), std::string::npos) << refused.error().message;
}

// Tensors 0 x, 1 y, 2 m, 3 count; op 0 f.
Trace reruns() {
  return mini(R"(
    tensor x 1K input carry
    tensor y 2K activation
    tensor m 4K saved
    tensor count 1K buffer carry
    op f forward fixed=count : x count -> y m count @10
  )");
}

TEST(Placement, DiscardedOutputsOfARerunGoToScratch) {
  const Plan plan = plan_of({{}, {}}, {run_step({0}, 0), tensor_step(kFree, {1}),
                                       tensor_step(kFree, {2}), run_step({0}, 0, {{1}})});
  const Result<Placement> placed = place(reruns(), plan, 1_MiB);
  ASSERT_TRUE(placed) << placed.error().message;
  ASSERT_EQ(placed->allocations.size(), 4U);
  EXPECT_EQ(placed->allocations[2].tensor, TensorId{2});
  EXPECT_EQ(placed->allocations[3].tensor, TensorId{1});
  EXPECT_EQ(placed->allocations[3].use, Use::scratch);
  EXPECT_EQ(residency(reruns(), plan)[3].workspace, 2_KiB);
  EXPECT_EQ(residency(reruns(), plan)[3].total, 8_KiB);
}

TEST(Placement, OutputsThatAChoiceOmitsTakeNoRange) {
  Trace trace = reruns();
  trace.ops[0].choices[0].omits = {{2}};
  const Result<Placement> placed = place(trace, plan_of({{}, {}}, {run_step({0}, 0)}), 1_MiB);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->allocations.size(), 1U);
}

TEST(Placement, ARerunDoesNotAllocateWhatItSkips) {
  const Plan plan = plan_of(
      {{}, {Place::host}}, {tensor_step(kPrefetch, {3}), run_step({0}, 0),
                            tensor_step(kOffload, {3}), tensor_step(kFree, {3}), run_step({0}, 0)});
  const Result<Placement> placed = place(reruns(), plan, 1_MiB);
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->allocations.size(), 3U) << "count on the device; y; m; nothing for the rerun";
}

TEST(Placement, GuardsPadEveryDeviceRangeOnBothSidesAndKeepAlignment) {
  const Plan plan = plan_of({{}, {}}, {run_step({0}, 0)});
  PlacementOptions options;
  options.guard = 256_B;
  const Result<Placement> placed = place(small(), plan, 1_MiB, options);
  ASSERT_TRUE(placed) << placed.error().message;
  std::vector<Allocation> all = placed->homes;
  all.insert(all.end(), placed->allocations.begin(), placed->allocations.end());
  Bytes end{};
  for (const Allocation& allocation : all) {
    EXPECT_EQ(allocation.range.offset.count % kAllocationUnit.count, 0);
    EXPECT_GE(allocation.range.offset - options.guard, end);
    end = allocation.range.offset + allocation.range.bytes + options.guard;
  }
  EXPECT_LE(end, placed->placed_peak);
}

TEST(Placement, BrokenPlansAreErrorsNotCrashes) {
  const std::vector<Plan> broken = {
      plan_of({{}}, {}),
      plan_of({{}, {}}, {run_step({9}, 0)}),
      plan_of({{}, {}}, {run_step({0}, 7)}),
      plan_of({{}, {}}, {tensor_step(kFree, {99})}),
      plan_of({{}, {}}, {tensor_step(kFree, {2})}),
      plan_of({{}, {}}, {tensor_step(kOffload, {2})}),
      plan_of({{}, {}}, {tensor_step(kPrefetch, {0})}),
      plan_of({{}, {}}, {tensor_step(kPrefetch, {2})}),
      plan_of({{}, {}}, {tensor_step(kFreeHost, {0})}),
  };
  for (const Plan& plan : broken) {
    const Result<Placement> refused = place(small(), plan, 1_MiB);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::unlawful) << refused.error().message;
    EXPECT_FALSE(smallest_arena(small(), plan));
    EXPECT_EQ(residency(small(), plan).size(), plan.steps.size());
  }
}

TEST(Placement, AnUnknownAllocatorIsRefusedWithTheListOfThem) {
  Plan plan = plan_of({{}, {}}, {});
  plan.allocator = "worst_fit";
  const Result<Placement> refused = place(small(), plan, 1_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_usage);
  EXPECT_NE(refused.error().message.find("first_fit"), std::string::npos);
}

TEST(Placement, ResidencyIsByRoleAndSumsToTheTotal) {
  const Plan plan =
      plan_of({{}, {}}, {run_step({0}, 0), run_step({1}, 0), tensor_step(kFree, {2})});
  const std::vector<Residency> rows = residency(small(), plan);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].total, 8_KiB);
  EXPECT_EQ(rows[0].workspace, 2_KiB);
  EXPECT_EQ(rows[1].total, 7_KiB);
  EXPECT_EQ(rows[2].total, 4_KiB);
  EXPECT_EQ(rows[2].by_role[static_cast<std::size_t>(Role::parameter)], 2_KiB);
  for (const Residency& row : rows) {
    Bytes sum = row.workspace;
    for (const Bytes bytes : row.by_role) sum += bytes;
    EXPECT_EQ(sum, row.total);
  }
}

TEST(LargestWorkingSet, CountsEachOperandOnceAndTheSmallestWorkspace) {
  const Trace trace = mini(R"(
    tensor x 4K input carry
    tensor y 8K activation
    op a forward : x[0:1K] x[1K:4K] -> y @10 ws=64K | @20 ws=1K
    op b forward : y -> y @10
  )");
  OpId op{7};
  EXPECT_EQ(largest_working_set(trace, &op), 13_KiB);
  EXPECT_EQ(op, OpId{0});
}

TEST(LargestWorkingSet, LeavesOutWhatAChoiceOmits) {
  Trace trace = mini(R"(
    tensor x 4K input carry
    tensor y 8K activation
    tensor m 16K saved
    op a forward : x -> y m @10
  )");
  EXPECT_EQ(largest_working_set(trace), 28_KiB);
  Choice lean;
  lean.workspace = 1_KiB;
  lean.omits = {{2}};
  trace.ops[0].choices.push_back(lean);
  EXPECT_EQ(largest_working_set(trace), 13_KiB);
}

}  // namespace
}  // namespace superneurons
