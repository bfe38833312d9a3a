// Random damage to valid plans of random traces is refused by check(), or proved harmless by a
// replay on symbolic values that shares nothing with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "ir/check.h"
#include "tests/check/damage.h"
#include "tests/check/value_replay.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

constexpr int kPlans = 250;
constexpr int kDamagesPerPlan = 40;  // 10,000 cases

struct Tally {
  std::array<int, kLawNames.size()> refused{};
  std::array<int, kLawNames.size()> strict{};  // of them harmless by value
  int accepted = 0;
};

/// The replay takes ids in range for granted, also in steps after the first broken one.
bool in_range(const Trace& trace, const Plan& plan) {
  for (const PlanStep& step : plan.steps) {
    const bool run = step.kind == StepKind::run;
    if (step.subject >= (run ? trace.ops.size() : trace.tensors.size())) return false;
    if (run && step.choice >= trace[step.op()].choices.size()) return false;
    for (const TensorId tensor : step.discard)
      if (tensor.index >= trace.tensors.size()) return false;
  }
  return true;
}

bool judge(const Trace& trace, ValueReplay& values, const Plan& damaged, Tally& tally) {
  const std::optional<Violation> found = check(trace, damaged);
  if (!found) {
    ++tally.accepted;
    const std::optional<std::string> harm = values.harm(damaged);
    EXPECT_FALSE(harm) << trace.name << ": accepted, but " << *harm;
    return !harm;
  }
  const auto law = static_cast<std::size_t>(found->law);
  ++tally.refused[law];
  if (in_range(trace, damaged) && !values.harm(damaged)) ++tally.strict[law];
  EXPECT_LE(found->step, damaged.steps.size());
  EXPECT_FALSE(found->detail.empty());
  return true;
}

void print(const Tally& tally) {
  std::printf("%d accepted and harmless; refused by law, and of them harmless by value:\n",
              tally.accepted);
  for (std::size_t i = 0; i < kLawNames.size(); ++i)
    std::printf("  %-27s %5d %5d\n", std::string(kLawNames[i]).c_str(), tally.refused[i],
                tally.strict[i]);
}

TEST(Mutation, damaged_plans_are_refused_or_harmless) {
  Tally tally;
  for (int i = 0; i < kPlans; ++i) {
    const auto seed = static_cast<std::uint64_t>(i);
    const Trace trace = random_trace(seed);
    const Plan plan = random_lawful_plan(trace, seed);
    ValueReplay values(trace);
    const std::optional<std::string> harm = values.harm(plan);
    ASSERT_FALSE(harm) << trace.name << ": " << *harm;
    TestRandom random{seed + 1000};
    for (int k = 0; k < kDamagesPerPlan; ++k)
      ASSERT_TRUE(judge(trace, values, Damage(trace, plan, random).make(), tally))
          << trace.name << ", damage " << k;
  }
  print(tally);
  // The test has teeth only if both answers are common and nearly every law speaks.
  EXPECT_GT(tally.accepted, 500);
  EXPECT_LT(tally.accepted, 5000);
  EXPECT_GE(std::count_if(tally.refused.begin(), tally.refused.end(), [](int n) { return n > 0; }),
            20);
  // Where a tensor or a byte is missing, check() and the values must agree. Elsewhere check() may
  // be stricter: it counts versions of whole tensors, and it knows no dead values.
  for (const Law law : {Law::free_of_absent, Law::offload_of_absent, Law::prefetch_of_resident,
                        Law::prefetch_without_host_copy, Law::free_host_of_absent, Law::over_budget,
                        Law::over_host_budget, Law::leftover_at_end})
    EXPECT_EQ(tally.strict[static_cast<std::size_t>(law)], 0)
        << kLawNames[static_cast<std::size_t>(law)] << " was refused for nothing";
}

}  // namespace
}  // namespace superneurons
