// Random traces x every policy x budgets: a lawful plan that places, or an honest floor.
#include <gtest/gtest.h>

#include "ir/check.h"
#include "ir/plan_io.h"
#include "memory/placement.h"
#include "tests/cases.h"
#include "tests/policies/fixtures.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

constexpr std::uint64_t kTraces = cases(80);

/// Every row, and orders and options that the compositions leave out.
std::vector<std::string> all_policies() {
  std::vector<std::string> names{
      "offload+recompute",
      "recompute+offload",
      "liveness+recompute+offload",
      "liveness+recompute+offload+recompute+offload",
      "offload:need=all+liveness",
      "recompute:need=all+liveness",
      "recorded+offload:need=all,layers=all,lookahead=2",
      "liveness+offload:need=all,layers=all,free=early,lookahead=3layers",
      "liveness+offload:need=all,layers=all,free=early,min=1+"
      "recompute:need=all,min=1",
      "liveness+recompute:need=all,min=1+offload:need=all,layers=all,min=1",
      "recompute:need=all,min=1+recompute:need=all,min=1+liveness",
      "liveness+tensor_cache:prefetch=demand,min=1",
      "liveness+tensor_cache:evict=belady",
      "liveness+offload:need=all,layers=all,min=1+tensor_cache",
      "liveness+recompute:need=all,min=1+tensor_cache:min=1",
      "tensor_cache:min=1+liveness+recompute:need=all",
      "liveness+offload_state:need=all,roles=all,min=1+tensor_cache",
      "liveness+recompute:need=all,min=1+offload_state:need=all,roles=all,min=1,lookahead=1",
      "liveness+offload_state:need=all,roles=all,min=1,lookahead=1+recompute:need=all",
      "liveness+offload:layers=checkpoints,need=all,lookahead=1+offload_state:roles=both",
      "liveness+recompute:strategy=speed",
      "liveness+recompute:strategy=memory,min=1",
      "recompute:need=all,strategy=memory,min=1+liveness",
      "liveness+recompute:need=all,l_peak=distinct,saved=keep,min=1",
      "liveness+offload:need=all,layers=all,free=early,lookahead=0,min=1+"
      "recompute:need=all,strategy=memory,min=1",
      "liveness+recompute:need=all,strategy=memory,l_peak=aliased,min=1+"
      "offload:need=all,layers=all,free=early,lookahead=3layers,min=1"};
  for (const PolicyEntry& entry : policies()) names.emplace_back(entry.name);
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  return names;
}

void expect_lawful(const Trace& trace, const Plan& plan) {
  const std::optional<Violation> violation = check(trace, plan);
  EXPECT_FALSE(violation) << to_error(*violation).message << "\n" << format_plan(plan);
  const Result<Placement> placement = place(trace, plan, plan.budget.device);
  EXPECT_TRUE(placement) << placement.error().message;
}

class RandomTraces : public testing::TestWithParam<std::string> {};

TEST_P(RandomTraces, ArePlannedLawfullyOrHonestlyRefused) {
  for (std::uint64_t seed = 0; seed < kTraces; ++seed) {
    RandomTraceOptions options;
    options.layers = 3 + static_cast<int>(seed % 8);
    options.largest = {std::int64_t{512} << (seed % 3 * 4)};
    const Trace trace = random_trace(seed, options);
    const Bytes keep_all = peak_of(trace, "keep_all"), liveness = peak_of(trace, "liveness");
    std::vector<Bytes> budgets{keep_all};
    for (const int percent : {120, 80, 60}) budgets.push_back({liveness.count * percent / 100});
    for (std::size_t i = 0; i < budgets.size(); ++i) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", budget " + std::to_string(budgets[i].count));
      const Bytes host = seed % 4 == 0 ? 8_KiB : 1_GiB;
      const Result<Plan> plan = plan_for(trace, request_for(GetParam(), budgets[i], host));
      if (plan) {
        expect_lawful(trace, *plan);
        continue;
      }
      ASSERT_EQ(plan.error().code, ErrorCode::does_not_fit) << plan.error().message;
      ASSERT_TRUE(plan.error().shortage);
      const Bytes floor = plan.error().shortage->smallest_budget;
      ASSERT_GT(floor, budgets[i]) << plan.error().message;
      if (budgets.size() < 6) budgets.push_back(floor);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, RandomTraces, testing::ValuesIn(all_policies()),
                         [](const auto& row) {
                           std::string name = std::to_string(row.index) + "_" + row.param;
                           for (char& c : name)
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           return name;
                         });

}  // namespace
}  // namespace superneurons
