// Random damage to valid plans of random traces is refused by check(), or proved harmless by a
// replay on symbolic values that shares nothing with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "ir/check.h"
#include "tests/check/value_replay.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

constexpr int kPlans = 250;
constexpr int kDamagesPerPlan = 40;  // 10,000 cases

class Damage {
 public:
  Damage(const Trace& trace, const Plan& plan, TestRandom& random)
      : trace_(trace), plan_(plan), random_(random) {}

  Plan make() && {
    const std::uint32_t times = random_.chance(70) ? 1 : 2 + random_.below(2);
    for (std::uint32_t i = 0; i < times; ++i) {
      if (random_.chance(75)) damage_order();
      else damage_content();
    }
    return std::move(plan_);
  }

 private:
  std::size_t position() { return random_.below(plan_.steps.size()); }
  auto at(std::size_t index) { return plan_.steps.begin() + static_cast<std::ptrdiff_t>(index); }

  void move(std::size_t from, std::size_t to) {
    const PlanStep step = plan_.steps[from];
    plan_.steps.erase(at(from));
    plan_.steps.insert(at(std::min(to, plan_.steps.size())), step);
  }

  void damage_order() {
    if (plan_.steps.empty()) return;
    const std::size_t one = position(), other = position();
    switch (random_.below(6)) {
      case 0:
        plan_.steps.erase(at(one));
        break;
      case 1: {
        const PlanStep step = plan_.steps[one];
        plan_.steps.insert(at(random_.chance(50) ? one : other), step);
        break;
      }
      case 2:
        std::swap(plan_.steps[one], plan_.steps[other]);
        break;
      case 3:
        std::swap(plan_.steps[one], plan_.steps[std::min(one + 1, plan_.steps.size() - 1)]);
        break;
      case 4:
        move(one, other);
        break;
      default:
        move(one, one > 3 ? one - 1 - random_.below(3) : one + random_.below(4));
    }
  }

  void damage_content() {
    if (plan_.steps.empty()) return;
    PlanStep& step = plan_.steps[position()];
    const bool run = step.kind == StepKind::run;
    switch (random_.below(8)) {
      case 0:
        step.subject = random_.below((run ? trace_.ops.size() : trace_.tensors.size()) + 1);
        break;
      case 1:
        if (!run) step.kind = static_cast<StepKind>(1 + random_.below(4));
        break;
      case 2:
        if (run) step.choice = random_.below(trace_[step.op()].choices.size() + 1);
        break;
      case 3:
        if (step.discard.empty()) discard(step);
        else step.discard.pop_back();
        break;
      case 4:
        if (!plan_.begin.empty())
          plan_.begin[random_.below(plan_.begin.size())].place =
              static_cast<Place>(random_.below(3));
        break;
      case 5:
        plan_.budget.device -= 1_B;
        break;
      case 6:
        plan_.budget.host -= 1_B;
        break;
      default:
        plan_.steps.insert(at(position()), tensor_step(static_cast<StepKind>(1 + random_.below(4)),
                                                       {random_.below(trace_.tensors.size())}));
    }
  }

  /// One of the outputs; sometimes any tensor, or none there is.
  void discard(PlanStep& step) {
    if (step.kind != StepKind::run || step.subject >= trace_.ops.size()) return;
    const auto& writes = trace_[step.op()].writes;
    TensorId tensor{random_.below(trace_.tensors.size() + 1)};
    if (random_.chance(80) && !writes.empty()) tensor = writes[random_.below(writes.size())].tensor;
    step.discard.push_back(tensor);
  }

  const Trace& trace_;
  Plan plan_;
  TestRandom& random_;
};

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
