// Property: random traces x every policy x budgets. Each plan is lawful and, replayed for real with
// verify surrogates in an arena of its budget, ends with the bits of its reference.
#include <gtest/gtest.h>

#include "ir/check.h"
#include "memory/placement.h"
#include "policies/policy.h"
#include "replay/reference.h"
#include "replay/replay.h"
#include "tests/cases.h"
#include "tests/random_trace.h"
#include "tests/replay/registered.h"

namespace superneurons {
namespace {

constexpr int kCases = cases(2000);  // plans replayed, over all policies

Result<Plan> plan_for(const Trace& trace, const std::string& policy, Bytes device) {
  PlanRequest request;
  request.policy = policy;
  request.budget = {device, 1_GiB};
  return make_plan(trace, slow_link(), request, {});
}

/// All that is registered, and recompute's other strategies: its own is cost_aware.
std::vector<std::string> planned() {
  std::vector<std::string> names = registered();
  for (const char* strategy : {"speed", "memory"})
    names.push_back(std::string("liveness+recompute:strategy=") + strategy);
  return names;
}

/// "" if the plan is lawful and its replay ends like its reference.
std::string judge(const Trace& trace, const Plan& plan, std::uint64_t seed) {
  if (const auto violation = check(trace, plan)) return to_error(*violation).message;
  ReplayOptions options;
  options.kernels = KernelSet::verify;
  options.training_steps = 2;
  options.seed = seed;
  const auto reference = run_plan(trace, reference_plan(trace, plan), options);
  if (!reference) return "reference: " + reference.error().message;
  options.stress = seed % 8 == 3;
  const auto run = run_plan(trace, plan, options);
  if (!run) return run.error().message;
  if (run->measured.peak > plan.budget.device) return "over the budget";
  return difference(trace, reference->checksums, run->checksums);
}

/// Replays the plans of one policy for one trace under 120, 80 and 60 % of the liveness peak and at
/// the floor; returns how many there were.
int replay_all(const Trace& trace, const std::string& policy, std::uint64_t seed) {
  const Result<Plan> liveness = plan_for(trace, "liveness", 1_GiB);
  EXPECT_TRUE(liveness);
  const Bytes peak = *smallest_arena(trace, *liveness);
  std::vector<Bytes> budgets;
  for (const int percent : {120, 80, 60}) budgets.push_back({peak.count * percent / 100});
  int replayed = 0;
  for (std::size_t i = 0; i < budgets.size(); ++i) {
    const Bytes budget = budgets[i];
    const Result<Plan> plan = plan_for(trace, policy, budget);
    if (plan) {
      ++replayed;
      EXPECT_EQ(judge(trace, *plan, seed), "")
          << policy << ", seed " << seed << ", budget " << budget.count;
      continue;
    }
    EXPECT_EQ(plan.error().code, ErrorCode::does_not_fit) << plan.error().message;
    const Bytes floor = plan.error().shortage ? plan.error().shortage->smallest_budget : Bytes{};
    EXPECT_GT(floor, budget) << plan.error().message;
    if (budgets.size() == 3) budgets.push_back(floor);  // once is enough
  }
  return replayed;
}

class RandomTraces : public testing::TestWithParam<std::string> {};

TEST_P(RandomTraces, are_planned_lawfully_and_replayed_to_the_bits_of_their_reference) {
  const int wanted = kCases / static_cast<int>(planned().size()) + 1;
  int replayed = 0;
  for (std::uint64_t seed = 1; replayed < wanted && seed < 10 * kCases; ++seed)
    replayed += replay_all(random_trace(seed, {.layers = 2 + static_cast<int>(seed % 5)}),
                           GetParam(), seed);
  EXPECT_GE(replayed, wanted);
}

INSTANTIATE_TEST_SUITE_P(Registry, RandomTraces, testing::ValuesIn(planned()), [](const auto& row) {
  std::string name = row.param;
  for (char& c : name)
    if (c == '+' || c == ':' || c == '=') c = '_';
  return name;
});

}  // namespace
}  // namespace superneurons
