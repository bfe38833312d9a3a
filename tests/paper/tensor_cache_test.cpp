// The tensor cache against algorithm 2 of the paper, worked examples, and table 3's shape.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "ir/check.h"
#include "memory/allocator.h"
#include "memory/placement.h"
#include "networks/network.h"
#include "policies/policy.h"
#include "simulator/cache_stats.h"
#include "simulator/outcome.h"
#include "tests/mini_trace.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

/// 1 byte per ns each way.
DeviceProfile slow_link() {
  DeviceProfile profile;
  profile.name = "slow_link";
  profile.offload = profile.prefetch = {{{1_KiB, 1024_ns}}, 1};
  profile.flops_per_ns = 1000;
  profile.memory_bytes_per_ns = 10;
  return profile;
}

Result<Plan> made(const Trace& trace, const std::string& policy, Bytes device,
                  Bytes host = 1_GiB * 64) {
  PlanRequest request;
  request.policy = policy;
  request.budget = {device, host};
  return make_plan(trace, slow_link(), request, {});
}

Plan good_plan(const Trace& trace, const std::string& policy, Bytes device,
               Bytes host = 1_GiB * 64) {
  const Result<Plan> plan = made(trace, policy, device, host);
  EXPECT_TRUE(plan) << policy << ": " << plan.error().message;
  return plan ? *plan : Plan{};
}

Bytes arena_of(const Trace& trace, const Plan& plan) {
  const Result<Bytes> arena = smallest_arena(trace, plan);
  EXPECT_TRUE(arena) << arena.error().message;
  return arena ? *arena : Bytes{};
}

Bytes floor_of(const Trace& trace, const std::string& policy) {
  PlanRequest request;
  request.policy = policy;
  request.budget = {1_GiB * 64, 1_GiB * 64};
  const Result<Floor> floor = smallest_budget(trace, slow_link(), request, {});
  EXPECT_TRUE(floor) << floor.error().message;
  return floor ? floor->budget : Bytes{};
}

std::string steps_of(const Trace& trace, const Plan& plan) {
  std::string text;
  for (const PlanStep& step : plan.steps) {
    text += std::string(kStepKindNames[static_cast<std::size_t>(step.kind)]) + " ";
    text += (step.kind == StepKind::run ? trace[step.op()].name : trace[step.tensor()].name) + "; ";
  }
  return text;
}

Bytes traffic(const Trace& trace, const Plan& plan) {
  Bytes bytes{};
  for (const PlanStep& step : plan.steps)
    if (step.kind == StepKind::offload || step.kind == StepKind::prefetch)
      bytes += trace[step.tensor()].bytes;
  return bytes;
}

// x has a home of 1 KiB; 8 KiB are left for a, b and c of 4 KiB each.
const char* kChain = R"(
  tensor x 1K input carry
  tensor a 4K activation
  tensor b 4K activation
  tensor c 4K activation
  op f1 forward : x -> a @9000
  op f2 forward : a -> b @9000
  op f3 forward : b -> c @9000
  op b3 backward : b c -> c @9000
  op b2 backward : a c -> c @9000
)";

TEST(TensorCache, TheLeastRecentlyUsedLeavesWhenMemoryIsShortAndComesBackOnDemand) {
  const Trace trace = mini(kChain);
  const Plan plan = good_plan(trace, "liveness+tensor_cache:prefetch=demand", 9_KiB);
  EXPECT_EQ(steps_of(trace, plan),
            "run f1; run f2; offload a; free a; run f3; run b3; free b; prefetch a; run b2; "
            "free_host a; free a; free c; ");
  EXPECT_EQ(cache_stats(trace, plan), (CacheStats{5, 1, 1, 0}));
}

TEST(TensorCache, MovesNothingWhileMemoryIsEnough) {
  const Trace trace = mini(kChain);
  const Plan plan = good_plan(trace, "liveness+tensor_cache", 13_KiB);
  EXPECT_EQ(traffic(trace, plan), 0_B);
  EXPECT_EQ(cache_stats(trace, plan), (CacheStats{6, 0, 0, 0}));
}

TEST(TensorCache, CopiesAheadAreTheSameCopiesEarlier) {
  const Trace trace = mini(kChain);
  const Plan plan = good_plan(trace, "liveness+tensor_cache", 9_KiB);
  EXPECT_EQ(steps_of(trace, plan),
            "run f1; offload a; run f2; free a; run f3; run b3; free b; prefetch a; run b2; "
            "free_host a; free a; free c; ");
}

// a is the least recent when f3 needs room, but f3 reads it: b must go.
TEST(TensorCache, OperandsAreLocked) {
  const Trace trace = mini(R"(
    tensor x 1K input carry
    tensor a 4K activation
    tensor b 4K activation
    tensor c 4K activation
    op f1 forward : x -> a
    op f2 forward : x -> b
    op f3 forward : a -> c
    op b3 backward : b c -> c
  )");
  const Plan plan = good_plan(trace, "liveness+tensor_cache:prefetch=demand", 9_KiB);
  EXPECT_EQ(steps_of(trace, plan),
            "run f1; run f2; offload b; free b; run f3; free a; prefetch b; run b3; free_host b; "
            "free b; free c; ");
}

TEST(TensorCache, ACleanValueLeavesWithoutAnotherCopy) {
  const Trace trace = mini(R"(
    tensor x 1K input carry
    tensor a 4K activation
    tensor b 8K activation
    tensor c 8K activation
    op f1 forward : x -> a
    op f2 forward : x -> b
    op b2 backward : b x -> x
    op b1 backward : a -> x
    op f3 forward : x -> c
    op b3 backward : c x -> x
    op b0 backward : a -> x
  )");
  const Plan plan = good_plan(trace, "liveness+tensor_cache:prefetch=demand", 10_KiB);
  EXPECT_EQ(steps_of(trace, plan),
            "run f1; offload a; free a; run f2; run b2; free b; prefetch a; run b1; "
            "free a; run f3; run b3; free c; prefetch a; run b0; free_host a; free a; ");
  EXPECT_EQ(cache_stats(trace, plan), (CacheStats{2, 2, 2, 1}));
}

TEST(TensorCache, WhatNobodyReadsAgainLeavesWithoutACopy) {
  const Trace trace = mini(kChain);
  // Without liveness b stays behind until the end; as nobody reads it after b3, it just goes.
  const Plan plan = good_plan(trace, "tensor_cache:prefetch=demand", 9_KiB);
  EXPECT_EQ(steps_of(trace, plan),
            "run f1; run f2; offload a; free a; run f3; run b3; free b; prefetch a; run b2; "
            "free_host a; free a; free c; ");
}

// LRU throws out a, which is needed next; with the plan known, b is the better victim.
TEST(TensorCache, BeladyThrowsOutWhatIsNeededLast) {
  const Trace trace = mini(R"(
    tensor x 1K input carry
    tensor a 4K activation
    tensor b 4K activation
    tensor c 4K activation
    op f1 forward : x -> a
    op f2 forward : x -> b
    op f3 forward : x -> c
    op g1 forward : a x -> x
    op g3 forward : c x -> x
    op g2 forward : b x -> x
  )");
  const Plan lru = good_plan(trace, "liveness+tensor_cache:prefetch=demand", 9_KiB);
  const Plan belady = good_plan(trace, "liveness+tensor_cache:prefetch=demand,evict=belady", 9_KiB);
  EXPECT_EQ(cache_stats(trace, lru).misses, 2);
  EXPECT_EQ(cache_stats(trace, belady).misses, 1);
}

TEST(TensorCache, SmallTensorsLeaveLast) {
  const Trace trace = mini(R"(
    tensor x 1K input carry
    tensor s 1K saved
    tensor a 4K activation
    tensor b 4K activation
    op f0 forward : x -> s
    op f1 forward : x -> a
    op f2 forward : x -> b
    op b2 backward : b x -> x
    op b1 backward : a s -> x
  )");
  const std::string lru = "liveness+tensor_cache:prefetch=demand,min=";
  EXPECT_NE(steps_of(trace, good_plan(trace, lru + "1", 9_KiB)).find("offload s"),
            std::string::npos);
  const std::string large = steps_of(trace, good_plan(trace, lru + "2KiB", 9_KiB));
  EXPECT_EQ(large.find("offload s"), std::string::npos) << large;
  EXPECT_NE(large.find("offload a"), std::string::npos) << large;
}

// p and q hold the arena apart; r of 6 KiB fits into the sum of the holes but into none of them
// unless its own operand q moves.
TEST(TensorCache, AnOperandMovesWhereItSplitsTheRoom) {
  const Trace trace = mini(R"(
    tensor x 1K input carry
    tensor p 3K activation
    tensor q 2K activation
    tensor r 6K activation
    op f1 forward : x -> p
    op f2 forward : p -> q
    op f3 forward : q -> r
    op b3 backward : q r -> r
  )");
  const Plan plan = good_plan(trace, "liveness+tensor_cache:prefetch=demand", 9_KiB);
  EXPECT_EQ(steps_of(trace, plan),
            "run f1; run f2; free p; offload q; free q; prefetch q; run f3; run b3; free_host q; "
            "free q; free r; ");
}

/// Homes and the operands, workspace and outputs of the largest op: no plan goes below.
Bytes least(const Trace& trace, const Plan& plan) {
  std::set<std::uint32_t> at_home;
  Bytes homes{}, largest{};
  for (std::size_t i = 0; i < plan.begin.size(); ++i) {
    if (plan.begin[i].place != Place::device) continue;
    at_home.insert({trace.carry[i].start.index, trace.carry[i].end.index});
    homes += round_up(trace[trace.carry[i].start].bytes, kAllocationUnit);
  }
  for (const Op& op : trace.ops) {
    const Choice& choice = op.choices[op.recorded];
    std::set<std::uint32_t> operands;
    for (const Access& read : op.reads) operands.insert(read.tensor.index);
    for (const Access& write : op.writes)
      if (std::find(choice.omits.begin(), choice.omits.end(), write.tensor) == choice.omits.end())
        operands.insert(write.tensor.index);
    Bytes set = round_up(choice.workspace, kAllocationUnit);
    for (const std::uint32_t tensor : operands)
      if (at_home.count(tensor) == 0) set += round_up(trace.tensors[tensor].bytes, kAllocationUnit);
    largest = std::max(largest, set);
  }
  return homes + largest;
}

TEST(TensorCache, ReachesTheLargestWorkingSetWhateverTheHoles) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    RandomTraceOptions options;
    options.layers = 3 + static_cast<int>(seed % 8);
    options.largest = {std::int64_t{512} << (seed % 3 * 4)};
    const Trace trace = random_trace(seed, options);
    const Bytes floor = floor_of(trace, "liveness+tensor_cache");
    EXPECT_EQ(floor, least(trace, good_plan(trace, "liveness", 1_GiB))) << "seed " << seed;
    EXPECT_LE(floor, floor_of(trace, "liveness+offload:layers=all,free=early")) << "seed " << seed;
    EXPECT_EQ(floor, floor_of(trace, "liveness+tensor_cache:evict=belady,prefetch=demand")) << seed;
  }
}

TEST(TensorCache, LessMemoryNeverMeansFewerCopiesThanNone) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    RandomTraceOptions options;
    options.layers = 8;
    options.largest = {std::int64_t{512} << (seed % 3 * 4)};
    const Trace trace = random_trace(seed, options);
    const Bytes peak = arena_of(trace, good_plan(trace, "liveness", 1_GiB));
    const Plan enough = good_plan(trace, "liveness+tensor_cache", peak);
    EXPECT_EQ(cache_stats(trace, enough).misses, 0) << "seed " << seed;
    const Bytes floor = floor_of(trace, "liveness+tensor_cache");
    if (floor == peak) continue;
    const Plan tight = good_plan(trace, "liveness+tensor_cache:prefetch=demand", floor);
    const CacheStats stats = cache_stats(trace, tight);
    EXPECT_GE(stats.evictions, stats.clean_evictions);
    EXPECT_GT(stats.misses, 0) << "seed " << seed;
  }
}

Trace paper_alexnet(std::int64_t batch) {
  Result<Trace> trace =
      lower(*find_network("alexnet"), {.batch = batch, .lowering = Lowering::paper});
  EXPECT_TRUE(trace) << trace.error().message;
  return trace ? *trace : Trace{};
}

// Table 3: without the cache every training step copies the same bytes per image; with it nothing
// until memory is short, and then little. (The paper's absolute values are not explained by its
// text: section 2 of the reference.)
TEST(TensorCache, CommunicationHasTheShapeOfTable3) {
  const std::string offload = "liveness+offload:need=all,layers=conv,lookahead=3layers,free=early";
  const Trace fits = paper_alexnet(512);
  const Bytes device = arena_of(fits, good_plan(fits, "liveness", 1_GiB * 64));
  std::vector<std::int64_t> without, with;
  for (const std::int64_t batch : {256, 384, 512, 640}) {
    const Trace trace = paper_alexnet(batch);
    without.push_back(traffic(trace, good_plan(trace, offload, 1_GiB * 64)).count);
    with.push_back(traffic(trace, good_plan(trace, "liveness+tensor_cache", device)).count);
  }
  for (std::size_t i = 0; i + 1 < without.size(); ++i)
    EXPECT_EQ(without[i + 1] - without[i], without[1] - without[0]);
  // Convolution outputs of AlexNet: 650,080 numbers per image, out and back.
  EXPECT_EQ(without[0], 2 * 4 * 650'080LL * 256);
  EXPECT_EQ(std::vector<std::int64_t>(with.begin(), with.end() - 1),
            std::vector<std::int64_t>(3, 0));
  EXPECT_GT(with.back(), 0);
  EXPECT_LT(with.back(), without.back());
}

TEST(TensorCache, ThePinnedPoolIsAsLargeAsThePlanNeeds) {
  const Trace trace = paper_alexnet(64);
  const Bytes peak = arena_of(trace, good_plan(trace, "liveness", 1_GiB * 64));
  for (const char* policy : {"liveness+tensor_cache", "liveness+offload:need=all"}) {
    Plan plan = good_plan(trace, policy, {peak.count * 9 / 10});
    // The most bytes on the host at one time, each copy rounded up.
    std::vector<bool> on_host(trace.tensors.size(), false);
    Bytes now{}, most{};
    for (const PlanStep& step : plan.steps) {
      if (step.kind != StepKind::offload && step.kind != StepKind::free_host) continue;
      const Bytes bytes = round_up(trace[step.tensor()].bytes, kAllocationUnit);
      const bool comes = step.kind == StepKind::offload;
      if (comes != on_host[step.subject]) now += comes ? bytes : 0_B - bytes;
      on_host[step.subject] = comes;
      most = std::max(most, now);
    }
    ASSERT_GT(most, 0_B);
    const Result<Outcome> outcome = evaluate(trace, plan, slow_link());
    ASSERT_TRUE(outcome) << outcome.error().message;
    EXPECT_GE(outcome->host_bytes, most) << policy;
    EXPECT_LE(outcome->host_bytes.count, most.count * 5 / 4) << policy;
    plan.budget.host = outcome->host_bytes;
    EXPECT_TRUE(place(trace, plan, plan.budget.device)) << policy;
    plan.budget.host = outcome->host_bytes - kAllocationUnit;
    EXPECT_FALSE(place(trace, plan, plan.budget.device)) << policy;
  }
}

TEST(TensorCache, KeepsWithinTheHostBudgetOrTellsTheFloor) {
  const Trace trace = mini(kChain);
  EXPECT_TRUE(made(trace, "liveness+tensor_cache", 9_KiB, 4_KiB));
  const Result<Plan> plan = made(trace, "liveness+tensor_cache", 9_KiB, 3_KiB);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::does_not_fit);
  ASSERT_TRUE(plan.error().shortage);
  EXPECT_EQ(plan.error().shortage->smallest_budget, 13_KiB);
}

TEST(TensorCache, TellsTheFloorAndWhoSetsIt) {
  const Trace trace = mini(kChain);
  const Result<Plan> plan = made(trace, "liveness+tensor_cache", 8_KiB);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().shortage->smallest_budget, 9_KiB);
  EXPECT_FALSE(plan.error().shortage->op.empty());
}

TEST(TensorCache, EveryAllocatorPlacesWhatItPlans) {
  const Trace trace = paper_alexnet(32);
  for (const AllocatorEntry& entry : allocators()) {
    PlanRequest request;
    request.policy = "liveness+tensor_cache";
    request.allocator = entry.name;
    request.budget = {1_GiB * 64, 1_GiB * 64};
    const Result<Plan> enough = make_plan(trace, slow_link(), request, {});
    ASSERT_TRUE(enough) << entry.name;
    request.budget.device = Bytes{arena_of(trace, *enough).count * 85 / 100};
    const Result<Plan> plan = make_plan(trace, slow_link(), request, {});
    if (!entry.coalesces && !plan) {  // what is cut stays cut: it may need more, and says so
      EXPECT_GT(plan.error().shortage->smallest_budget, request.budget.device);
      continue;
    }
    ASSERT_TRUE(plan) << entry.name << ": " << plan.error().message;
    EXPECT_TRUE(place(trace, *plan, request.budget.device)) << entry.name;
    EXPECT_GT(cache_stats(trace, *plan).misses, 0) << entry.name;
  }
}

TEST(TensorCache, BadOptionsAreExplained) {
  for (const char* options : {"evict=mru", "prefetch=never", "min=big"}) {
    const Result<Plan> plan = made(mini(kChain), std::string("tensor_cache:") + options, 1_GiB);
    ASSERT_FALSE(plan) << options;
    EXPECT_EQ(plan.error().code, ErrorCode::bad_usage);
    EXPECT_NE(plan.error().message.find("it takes"), std::string::npos) << plan.error().message;
  }
}

}  // namespace
}  // namespace superneurons
