// Damaged plans that check() accepts do no harm: replayed for real, they end with the bits of their
// reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "ir/check.h"
#include "memory/placement.h"
#include "replay/reference.h"
#include "replay/replay.h"
#include "tests/check/damage.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

constexpr int kAccepted = 400;
constexpr int kPerPlan = 4;  // accepted damages of one plan

/// "" if the two ended alike.
std::string compare(const Trace& trace, Plan plan, std::uint64_t seed) {
  // check() counts bytes; the arena and the host pool also need room between them.
  plan.budget.host = 1_GiB;
  const Result<Bytes> arena = smallest_arena(trace, plan);
  if (!arena) return "does not place: " + arena.error().message;
  plan.budget.device = *arena;
  ReplayOptions options;
  options.kernels = KernelSet::verify;
  options.training_steps = 2;
  options.seed = seed;
  const auto reference = run_plan(trace, reference_plan(trace, plan), options);
  if (!reference) return "reference: " + reference.error().message;
  options.stress = seed % 8 == 0;
  options.guards = seed % 8 == 4;
  const auto run = run_plan(trace, plan, options);
  if (!run) return run.error().message;
  return difference(trace, reference->checksums, run->checksums);
}

bool same_steps(const Plan& a, const Plan& b) {
  const auto same = [](const PlanStep& x, const PlanStep& y) {
    return x.kind == y.kind && x.subject == y.subject && x.choice == y.choice &&
           x.discard == y.discard;
  };
  return a.steps.size() == b.steps.size() &&
         std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), same);
}

TEST(MutationReplay, accepted_damage_ends_with_the_bits_of_its_reference) {
  int accepted = 0;
  for (std::uint64_t seed = 1; accepted < kAccepted && seed <= 1000; ++seed) {
    const Trace trace = random_trace(seed);
    const Plan plan = random_lawful_plan(trace, seed);
    TestRandom random{seed + 5000};
    for (int damages = 0, mine = 0; damages < 60 && mine < kPerPlan; ++damages) {
      Plan damaged = Damage(trace, plan, random).make();
      if (same_steps(plan, damaged) || check(trace, damaged)) continue;
      ++mine;
      ++accepted;
      ASSERT_EQ(compare(trace, std::move(damaged), seed), "")
          << trace.name << ", damage " << damages;
    }
  }
  EXPECT_GE(accepted, kAccepted);
}

/// Values that are there but wrong; after other faults the plan cannot even be run.
bool gives_wrong_values(Law law) {
  return law == Law::stale_version || law == Law::stale_host_copy ||
         law == Law::first_run_out_of_order || law == Law::double_update ||
         law == Law::rerun_without_old_version;
}

/// The judge can tell: of the plans that check() refuses, many end with other bits.
TEST(MutationReplay, refused_damage_often_ends_with_other_bits) {
  int refused = 0, harmful = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Trace trace = random_trace(seed);
    Plan plan = random_lawful_plan(trace, seed);
    TestRandom random{seed + 9000};
    for (int damages = 0; damages < 20; ++damages) {
      Plan damaged = Damage(trace, plan, random).make();
      const auto violation = check(trace, damaged);
      if (!violation || !gives_wrong_values(violation->law)) continue;
      damaged.budget.host = 1_GiB;
      const Result<Bytes> arena = smallest_arena(trace, damaged);
      if (!arena) continue;
      damaged.budget.device = *arena;
      ReplayOptions options;
      options.kernels = KernelSet::verify;
      options.training_steps = 2;
      const auto reference = run_plan(trace, reference_plan(trace, damaged), options);
      const auto run = run_unchecked_plan(trace, damaged, options);
      if (!reference || !run) continue;
      ++refused;
      if (!difference(trace, reference->checksums, run->checksums).empty()) ++harmful;
    }
  }
  std::printf("%d of %d refused plans end with other bits\n", harmful, refused);
  EXPECT_GT(harmful, 20);
}

}  // namespace
}  // namespace superneurons
