// Random plans over every allocator: ranges that are held together never overlap, the arena needed
// is exact, and offsets depend on nothing else.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "memory/allocator.h"
#include "memory/placement.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

struct Case {
  Trace trace;
  Plan plan;
};

class RandomPlan {
 public:
  RandomPlan(std::uint32_t seed, std::uint32_t ops) : random_(seed), ops_(ops) {}

  Case make() && {
    for (int i = 0; i < 6; ++i) add_carry(i);
    device_.resize(trace_.tensors.size());
    host_.resize(trace_.tensors.size());
    for (std::size_t i = 0; i < trace_.carry.size(); ++i) {
      const std::uint32_t start = trace_.carry[i].start.index;
      device_[start] = plan_.begin[i].place == Place::device;
      host_[start] = plan_.begin[i].place == Place::host;
    }
    for (std::uint32_t i = 0; i < ops_; ++i) {
      add_op(i);
      for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) move(t);
    }
    plan_.budget = {kEndless, kEndless};
    return {std::move(trace_), std::move(plan_)};
  }

 private:
  bool chance(int percent) { return static_cast<int>(random_() % 100) < percent; }

  TensorId add_tensor(const std::string& name, Bytes bytes) {
    Tensor tensor;
    tensor.name = name;
    tensor.bytes = bytes;
    tensor.role = static_cast<Role>(random_() % kRoleNames.size());
    trace_.tensors.push_back(std::move(tensor));
    return {static_cast<std::uint32_t>(trace_.tensors.size() - 1)};
  }
  Bytes some_bytes() {
    return {1 + static_cast<std::int64_t>(random_() % (64U << random_() % 19))};
  }

  void add_carry(int number) {
    const Bytes bytes = some_bytes();
    const TensorId start = add_tensor("start" + std::to_string(number), bytes);
    const TensorId end = chance(50) ? start : add_tensor("end" + std::to_string(number), bytes);
    trace_.carry.push_back({end, start});
    plan_.begin.push_back({static_cast<Place>(random_() % 3)});
    if (end != start) partner_[end.index] = start.index;
  }

  /// An op that writes one or two new tensors and sometimes the end of a carry whose start is gone.
  void add_op(std::uint32_t number) {
    Op op;
    op.name = "op" + std::to_string(number);
    std::vector<TensorId> discard;
    for (std::uint32_t i = 0; i < 1 + random_() % 2; ++i) {
      const TensorId tensor =
          add_tensor("t" + std::to_string(number) + std::to_string(i), some_bytes());
      op.writes.push_back({tensor, {}, trace_[tensor].bytes});
      if (chance(10)) discard.push_back(tensor);
      device_.push_back(discard.empty() || discard.back() != tensor);
      host_.push_back(false);
    }
    for (const auto& [end, start] : partner_) {
      if (device_[end] || device_[start] || host_[start] || !chance(20)) continue;
      op.writes.push_back({{end}, {}, trace_[TensorId{end}].bytes});
      device_[end] = true;
    }
    Choice choice;
    if (chance(40)) choice.workspace = some_bytes();
    op.choices.push_back(choice);
    trace_.ops.push_back(std::move(op));
    plan_.steps.push_back(run_step({number}, 0, std::move(discard)));
  }

  void move(std::uint32_t tensor) {
    const auto step = [&](StepKind kind) { plan_.steps.push_back(tensor_step(kind, {tensor})); };
    if (device_[tensor]) {
      if (!host_[tensor] && chance(4) && host_home_is_free(tensor)) {
        step(StepKind::offload);
        host_[tensor] = true;
      }
      if (!chance(12)) return;
      step(StepKind::free);
      device_[tensor] = false;
    } else if (host_[tensor]) {
      if (chance(6) && !partner_is(tensor)) {
        step(StepKind::prefetch);
        device_[tensor] = true;
      }
      if (!chance(6)) return;
      step(StepKind::free_host);
      host_[tensor] = false;
    }
  }
  bool host_home_is_free(std::uint32_t tensor) const {
    for (const auto& [end, start] : partner_) {
      if (tensor == end && host_[start]) return false;
      if (tensor == start && host_[end]) return false;
    }
    return true;
  }
  /// Whether the tensor shares a home with one that is on the device.
  bool partner_is(std::uint32_t tensor) const {
    for (const auto& [end, start] : partner_)
      if ((tensor == end && device_[start]) || (tensor == start && device_[end])) return true;
    return false;
  }

  std::mt19937 random_;
  std::uint32_t ops_;
  Trace trace_;
  Plan plan_;
  std::vector<bool> device_;
  std::vector<bool> host_;
  std::map<std::uint32_t, std::uint32_t> partner_;  // end of a two-tensor carry to its start
};

/// Follows a placement through its plan and holds every range against those held with it. Written
/// apart from memory/schedule.h.
class Ground {
 public:
  Ground(const Case& at, const Placement& placement) : case_(at), placement_(placement) {}

  void walk() {
    for (const Allocation& home : placement_.homes) {
      homes_[static_cast<int>(home.space)][home.range.offset] = home.range.bytes;
      hold(home);
    }
    for (std::uint32_t i = 0; i < case_.plan.steps.size(); ++i) step(i);
    EXPECT_LE(highest_, placement_.placed_peak);
    EXPECT_LE(placement_.live_peak, placement_.placed_peak);
  }

 private:
  using Ranges = std::map<Bytes, Bytes>;  // offset to bytes

  void step(std::uint32_t number) {
    std::vector<Allocation> lent;
    for (std::uint32_t k = placement_.first[number]; k < placement_.first[number + 1]; ++k) {
      const Allocation& allocation = placement_.allocations[k];
      if (allocation.use != Use::tensor) lent.push_back(allocation);
      const Ranges& homes = homes_[static_cast<int>(allocation.space)];
      if (allocation.use == Use::tensor && homes.contains(allocation.range.offset)) {
        EXPECT_EQ(homes.at(allocation.range.offset), allocation.range.bytes);
        at_[static_cast<int>(allocation.space)].insert_or_assign(allocation.tensor, allocation);
        continue;
      }
      hold(allocation);
    }
    for (const Allocation& allocation : lent) release(allocation);
    const PlanStep& step = case_.plan.steps[number];
    if (step.kind == StepKind::free) release(at_[0].at(step.tensor()));
    if (step.kind == StepKind::free_host) release(at_[1].at(step.tensor()));
  }

  void hold(const Allocation& allocation) {
    Ranges& held = held_[static_cast<int>(allocation.space)];
    const Bytes offset = allocation.range.offset;
    const Bytes end = offset + allocation.range.bytes;
    const auto after = held.lower_bound(offset);
    EXPECT_TRUE(after == held.end() || end <= after->first);
    EXPECT_TRUE(after == held.begin() ||
                std::prev(after)->first + std::prev(after)->second <= offset);
    EXPECT_EQ(offset.count % 512, 0);
    held[offset] = allocation.range.bytes;
    if (allocation.space == Space::device) highest_ = std::max(highest_, end);
    if (allocation.space == Space::host) {
      EXPECT_LE(end, placement_.host_peak);
    }
    if (allocation.use == Use::tensor)
      at_[static_cast<int>(allocation.space)].insert_or_assign(allocation.tensor, allocation);
  }
  void release(const Allocation& allocation) {
    const auto space = static_cast<int>(allocation.space);
    if (!homes_[space].contains(allocation.range.offset))
      held_[space].erase(allocation.range.offset);
  }

  const Case& case_;
  const Placement& placement_;
  Ranges held_[2];
  Ranges homes_[2];
  std::map<TensorId, Allocation> at_[2];
  Bytes highest_{};
};

class EveryPlacement : public testing::TestWithParam<AllocatorEntry> {};

INSTANTIATE_TEST_SUITE_P(Registry, EveryPlacement,
                         testing::ValuesIn(allocators().begin(), allocators().end()),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_P(EveryPlacement, RangesHeldTogetherNeverOverlap) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    Case random = RandomPlan(seed, 10 + 4 * seed).make();
    random.plan.allocator = GetParam().name;
    const Result<Placement> placed = place(random.trace, random.plan, kEndless);
    ASSERT_TRUE(placed) << placed.error().message;
    Ground(random, *placed).walk();
  }
}

TEST_P(EveryPlacement, TheArenaNeededIsExact) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    Case random = RandomPlan(seed, 10 + 4 * seed).make();
    random.plan.allocator = GetParam().name;
    const Result<Bytes> smallest = smallest_arena(random.trace, random.plan);
    ASSERT_TRUE(smallest) << smallest.error().message;
    const Result<Placement> fits = place(random.trace, random.plan, *smallest);
    ASSERT_TRUE(fits) << fits.error().message;
    EXPECT_EQ(fits->placed_peak, *smallest);
    EXPECT_GE(fits->placed_peak, fits->live_peak);
    Ground(random, *fits).walk();
    const Result<Placement> refused = place(random.trace, random.plan, *smallest - 1_KiB);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
    ASSERT_TRUE(refused.error().shortage);
    EXPECT_EQ(refused.error().shortage->smallest_budget, *smallest);
    EXPECT_GT(refused.error().shortage->short_by, 0_B);
  }
}

TEST_P(EveryPlacement, TheArenaThatAnyPlacementNeededIsEnough) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    Case random = RandomPlan(seed, 100).make();
    random.plan.allocator = GetParam().name;
    const Result<Placement> endless = place(random.trace, random.plan, kEndless);
    ASSERT_TRUE(endless) << endless.error().message;
    const Result<Placement> exact = place(random.trace, random.plan, endless->placed_peak);
    ASSERT_TRUE(exact) << exact.error().message;
    ASSERT_EQ(exact->allocations.size(), endless->allocations.size());
    for (std::size_t i = 0; i < exact->allocations.size(); ++i)
      EXPECT_EQ(exact->allocations[i].range.offset, endless->allocations[i].range.offset);
    const std::string name(GetParam().name);
    if (GetParam().elastic) continue;
    EXPECT_FALSE(place(random.trace, random.plan, endless->placed_peak - 1_KiB)) << name;
  }
}

TEST_P(EveryPlacement, TheHostPoolNeededIsExact) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    Case random = RandomPlan(seed, 100).make();
    random.plan.allocator = GetParam().name;
    const Result<Placement> endless = place(random.trace, random.plan, kEndless);
    ASSERT_TRUE(endless) << endless.error().message;
    random.plan.budget.host = endless->host_peak;
    EXPECT_TRUE(place(random.trace, random.plan, kEndless));
    if (endless->host_peak == 0_B) continue;
    random.plan.budget.host = endless->host_peak - 1_KiB;
    EXPECT_FALSE(place(random.trace, random.plan, kEndless));
    EXPECT_FALSE(fits(random.trace, random.plan, kEndless));
  }
}

TEST_P(EveryPlacement, GuardsAreKeptFreeOnBothSides) {
  PlacementOptions options;
  options.guard = 700_B;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    Case random = RandomPlan(seed, 60).make();
    random.plan.allocator = GetParam().name;
    Result<Placement> placed = place(random.trace, random.plan, kEndless, options);
    ASSERT_TRUE(placed) << placed.error().message;
    // With each device range widened by its guards there is still no overlap.
    const auto widen = [&](Allocation& allocation) {
      if (allocation.space == Space::host) return;
      allocation.range.offset -= 1_KiB;  // the guard, rounded up to the unit
      allocation.range.bytes += 1_KiB + options.guard;
      EXPECT_GE(allocation.range.offset, 0_B);
    };
    for (Allocation& home : placed->homes) widen(home);
    for (Allocation& allocation : placed->allocations) widen(allocation);
    Ground(random, *placed).walk();
  }
}

TEST_P(EveryPlacement, WhatTheCheckerAcceptsIsPlacedInAnExactArena) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Case lawful;
    lawful.trace = random_trace(seed, {.layers = 8, .largest = 64_KiB});
    lawful.plan = random_lawful_plan(lawful.trace, seed);
    lawful.plan.allocator = GetParam().name;
    lawful.plan.budget.host = kEndless;
    const Result<Bytes> smallest = smallest_arena(lawful.trace, lawful.plan);
    ASSERT_TRUE(smallest) << smallest.error().message;
    const Result<Placement> placed = place(lawful.trace, lawful.plan, *smallest);
    ASSERT_TRUE(placed) << placed.error().message;
    EXPECT_EQ(placed->placed_peak, *smallest);
    Ground(lawful, *placed).walk();
    EXPECT_FALSE(place(lawful.trace, lawful.plan, *smallest - 1_KiB));
    EXPECT_TRUE(fits(lawful.trace, lawful.plan, *smallest));
    EXPECT_FALSE(fits(lawful.trace, lawful.plan, *smallest - 1_KiB));
  }
}

TEST(Placement, StaticOffsetsNeedNoMoreThanFirstFit) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    Case random = RandomPlan(seed, 100).make();
    const Result<Bytes> online = smallest_arena(random.trace, random.plan);
    random.plan.allocator = "static_offsets";
    const Result<Bytes> offline = smallest_arena(random.trace, random.plan);
    ASSERT_TRUE(online && offline);
    EXPECT_LE(*offline, *online);
  }
}

TEST(Placement, DamagedPlansNeverCrash) {
  std::mt19937 random(9);
  int refused = 0;
  for (int round = 0; round < 300; ++round) {
    Case damaged = RandomPlan(round, 30).make();
    for (int i = 0; i < 3; ++i) {
      PlanStep& step = damaged.plan.steps[random() % damaged.plan.steps.size()];
      if (random() % 2 == 0) step.kind = static_cast<StepKind>(random() % kStepKindNames.size());
      if (random() % 2 == 0) step.subject = random() % 80;
      if (random() % 8 == 0) step.choice = random() % 3;
      std::swap(step, damaged.plan.steps[random() % damaged.plan.steps.size()]);
    }
    const bool placed = static_cast<bool>(place(damaged.trace, damaged.plan, kEndless));
    EXPECT_EQ(fits(damaged.trace, damaged.plan, kEndless), placed);
    if (!placed) ++refused;
    EXPECT_EQ(residency(damaged.trace, damaged.plan).size(), damaged.plan.steps.size());
  }
  EXPECT_GT(refused, 150);
}

}  // namespace
}  // namespace superneurons
