// Every policy and composition of the registry, on every trace, under every budget: what all of
// them must keep. A new row is tested by being there.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ir/check.h"
#include "ir/files.h"
#include "ir/plan_io.h"
#include "memory/placement.h"
#include "tests/cases.h"
#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

std::vector<std::string> registered() {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policies()) names.emplace_back(entry.name);
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  return names;
}

/// What holds of a plan, whoever made it.
void expect_good(const Trace& trace, const Plan& plan, Budget budget) {
  EXPECT_EQ(plan.budget.device, budget.device);
  const std::optional<Violation> violation = check(trace, plan);
  EXPECT_FALSE(violation) << to_error(*violation).message << "\n" << format_plan(plan);
  const Result<Placement> placement = place(trace, plan, budget.device);
  EXPECT_TRUE(placement) << placement.error().message;
  if (placement) {
    EXPECT_LE(placement->host_peak, budget.host);
  }
}

class EveryPolicy : public testing::TestWithParam<std::string> {};

TEST_P(EveryPolicy, MakesAGoodPlanWhereThereIsRoom) {
  for (const auto& [name, trace] : policy_traces()) {
    SCOPED_TRACE(name);
    const PlanRequest request = request_for(GetParam(), 1_GiB);
    const Result<Plan> plan = plan_for(trace, request);
    ASSERT_TRUE(plan) << plan.error().message;
    expect_good(trace, *plan, request.budget);
    EXPECT_EQ(plan->policy, GetParam());
  }
}

TEST_P(EveryPolicy, FitsOrTellsTheFloorUnderTightBudgets) {
  for (const auto& [name, trace] : policy_traces()) {
    const Bytes liveness = peak_of(trace, "liveness");
    for (const int percent : some_of<int>({120, 100, 90, 80, 70, 60, 50, 40})) {
      for (const Bytes host : {1_GiB, 300_KiB, 0_B}) {
        SCOPED_TRACE(name + " at " + std::to_string(percent) + " %, host " + format_bytes(host));
        const PlanRequest request = request_for(GetParam(), {liveness.count * percent / 100}, host);
        const Result<Plan> plan = plan_for(trace, request);
        if (plan) {
          expect_good(trace, *plan, request.budget);
          continue;
        }
        ASSERT_EQ(plan.error().code, ErrorCode::does_not_fit) << plan.error().message;
        ASSERT_TRUE(plan.error().shortage);
        const Shortage& shortage = *plan.error().shortage;
        EXPECT_GT(shortage.smallest_budget, request.budget.device);
        EXPECT_FALSE(shortage.op.empty());
        PlanRequest enough = request;
        enough.budget.device = shortage.smallest_budget;
        const Result<Plan> there = plan_for(trace, enough);
        ASSERT_TRUE(there) << there.error().message;
        expect_good(trace, *there, enough.budget);
      }
    }
  }
}

TEST_P(EveryPolicy, HasAFloorThatFitsAndNothingBelow) {
  for (const auto& [name, trace] : policy_traces()) {
    SCOPED_TRACE(name);
    PlanRequest request = request_for(GetParam(), 1_GiB);
    const Result<Floor> floor = smallest_budget(trace, slow_link(), request, {});
    ASSERT_TRUE(floor) << floor.error().message;
    EXPECT_GE(floor->budget, largest_working_set(trace));
    request.budget.device = floor->budget;
    EXPECT_TRUE(plan_for(trace, request));
    request.budget.device = floor->budget - 1024_B;
    EXPECT_FALSE(plan_for(trace, request));
  }
}

TEST_P(EveryPolicy, PlansADeepNetwork) {
  const Trace trace = network_trace("resnet50", Lowering::native, 1);
  const Bytes liveness = peak_of(trace, "liveness");
  for (const int percent : {100, 85, 70}) {
    const PlanRequest request = request_for(GetParam(), {liveness.count * percent / 100});
    const Result<Plan> plan = plan_for(trace, request);
    if (plan) expect_good(trace, *plan, request.budget);
    else EXPECT_EQ(plan.error().code, ErrorCode::does_not_fit) << plan.error().message;
  }
}

TEST_P(EveryPolicy, IsDeterministic) {
  for (const auto& [name, trace] : policy_traces()) {
    PlanRequest request =
        request_for(GetParam(), {peak_of(trace, GetParam()).count * 8 / 10}, 1_GiB);
    request.explain = true;
    const Result<Plan> one = plan_for(trace, request), two = plan_for(trace, request);
    ASSERT_EQ(static_cast<bool>(one), static_cast<bool>(two)) << name;
    if (one) EXPECT_EQ(format_plan(*one), format_plan(*two)) << name;
    else EXPECT_EQ(one.error().message, two.error().message) << name;
  }
}

TEST_P(EveryPolicy, ExplainsWithoutChangingThePlan) {
  for (const auto& [name, trace] : policy_traces()) {
    PlanRequest request = request_for(GetParam(), 1_GiB);
    const Result<Plan> plain = plan_for(trace, request);
    request.explain = true;
    Result<Plan> explained = plan_for(trace, request);
    ASSERT_TRUE(plain && explained) << name;
    for (const Reason& reason : explained->reasons) EXPECT_LT(reason.step, plain->steps.size());
    explained->reasons.clear();
    EXPECT_EQ(format_plan(*plain), format_plan(*explained)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryPolicy, testing::ValuesIn(registered()),
                         [](const auto& row) { return row.param; });

TEST(Registry, EachRowHasAPlanOfItsOwn) {
  Trace probing = policy_traces()[0].trace;
  Op& first = probing.ops.front();
  first.choices.push_back(first.choices[first.recorded]);  // something to choose from
  first.choices.back().ns = {first.choices[first.recorded].ns.count / 2};
  std::map<std::string, std::string> plans;  // text -> whose
  const Bytes tight{peak_of(probing, "liveness").count * 85 / 100};
  for (const PolicyEntry& entry : policies()) {
    // Each on its own where there is room, so that only its own decisions show.
    std::string name(entry.name);
    for (const OptionEntry& option : entry.options)
      if (option.name == "need") name += ":need=all";
    // The cache moves nothing where there is room.
    const Bytes device = entry.name == "tensor_cache" ? tight : 1_GiB;
    Result<Plan> plan = plan_for(probing, request_for(name, device));
    // What does nothing but what it has to shows where it has to.
    if (entry.name == "balance" || entry.name == "mix") {
      const Result<Floor> floor =
          smallest_budget(probing, slow_link(), request_for("liveness+" + name, 1_GiB), {});
      ASSERT_TRUE(floor);
      plan = plan_for(probing, request_for("liveness+" + name, floor->budget));
    }
    ASSERT_TRUE(plan) << plan.error().message;
    plan->policy.clear();
    plan->budget = {};
    const auto [other, own] = plans.try_emplace(format_plan(*plan), name);
    EXPECT_TRUE(own)
        << name << " plans what " << other->second << " plans on the trace '" << probing.name
        << "' (policy_traces()[0] of fixtures_test.cpp, the first op with a "
        << "second choice of half its time) with " << device.count << " B. Its default "
        << "options should act there; if it acts only elsewhere, give it a budget or a "
        << "trace of its own in this test, as balance has.";
  }
  plans.clear();
  for (const CompositionEntry& entry : compositions()) {
    Result<Plan> plan = plan_for(probing, request_for(std::string(entry.name), tight));
    if (!plan) continue;
    plan->policy.clear();
    const auto [other, distinct] = plans.try_emplace(format_plan(*plan), entry.name);
    // The best of several may be what one of them is.
    if (entry.passes.find('/') == std::string_view::npos) {
      EXPECT_TRUE(distinct) << entry.name << " plans what " << other->second
                            << " plans on the trace '" << probing.name << "' with " << tight.count
                            << " B";
    }
  }
}

TEST(Registry, NamesAndSummariesAreThere) {
  std::set<std::string_view> names;
  for (const PolicyEntry& entry : policies()) {
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
    EXPECT_FALSE(entry.summary.empty()) << entry.name;
    EXPECT_EQ(entry.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789"),
              std::string_view::npos);
  }
  for (const CompositionEntry& entry : compositions())
    EXPECT_TRUE(names.insert(entry.name).second) << entry.name;
}

}  // namespace
}  // namespace superneurons
