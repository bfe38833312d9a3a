#include "simulator/explanation.h"

#include <gtest/gtest.h>

#include "memory/placement.h"
#include "policies/policy.h"
#include "tests/mini_trace.h"
#include "tests/simulator/support.h"

namespace superneurons {
namespace {

/// `x` waits from `first` to `last` while `middle` needs most.
const char* const kChain = R"(
  tensor w 4K parameter carry
  tensor x 8K activation
  tensor y 16K activation
  tensor z 2K activation
  op first forward : w -> x @1000
  op middle forward : x -> y @1000 ws=64K
  op after forward : y -> z @1000
  op last backward : x z w -> w @1000
)";

struct Explained {
  Trace trace = mini(kChain);
  Plan plan;
  Evaluation evaluation;
};

Explained explained(const std::string& policy, Bytes budget) {
  Explained result;
  const DeviceProfile profile = plain_profile();
  auto plan = make_plan(result.trace, profile,
                        {.policy = policy, .budget = {budget, Bytes{1 << 20}}, .explain = true},
                        predictor(result.trace, profile));
  EXPECT_TRUE(plan) << plan.error().message;
  result.plan = std::move(*plan);
  auto evaluation = evaluate_in_full(result.trace, result.plan, profile, {.keep_spans = true});
  EXPECT_TRUE(evaluation) << evaluation.error().message;
  result.evaluation = std::move(*evaluation);
  return result;
}

std::string name(const Trace& trace, const Resident& resident) {
  return trace[resident.tensor].name;
}

TEST(Explanation, names_what_is_on_the_device_when_most_is_needed) {
  const Explained it = explained("liveness", Bytes{1 << 20});
  const Explanation why = explain(it.trace, it.plan, it.evaluation);
  EXPECT_EQ(it.trace[it.plan.steps[why.peak_step].op()].name, "middle");
  EXPECT_EQ(why.peak, Bytes{(4 + 8 + 16 + 64) << 10});
  EXPECT_EQ(why.workspace, Bytes{64 << 10});
  ASSERT_EQ(why.residents.size(), 3u);
  EXPECT_EQ(name(it.trace, why.residents[0]), "y");
  EXPECT_EQ(name(it.trace, why.residents[1]), "x");
  EXPECT_TRUE(why.residents[1].operand);
  ASSERT_TRUE(why.residents[1].next_use);
  EXPECT_EQ(it.trace[*why.residents[1].next_use].name, "last");
  EXPECT_EQ(name(it.trace, why.residents[2]), "w");
  EXPECT_TRUE(why.residents[2].home);
}

TEST(Explanation, tells_a_tensors_life_with_the_policys_reasons) {
  const Explained it = explained("liveness", Bytes{1 << 20});
  const auto life = life_of(it.trace, it.plan, it.evaluation, TensorId{1});
  std::vector<std::string> what;
  for (const LifeEvent& event : life) what.push_back(event.what);
  EXPECT_EQ(what, (std::vector<std::string>{"written by first", "read by middle", "read by last",
                                            "free"}));
  EXPECT_EQ(life[0].span->start, Nanoseconds{});
  EXPECT_EQ(life[1].span->end - life[1].span->start, Nanoseconds{1000});
  EXPECT_FALSE(life[3].span) << "giving memory back takes no stream";
  EXPECT_FALSE(life[3].whys.empty());
}

TEST(Explanation, blames_the_copy_that_a_run_waited_for) {
  Trace trace = mini(R"(
    tensor x 8M activation
    tensor y 16M activation
    tensor z 2K activation
    op first forward : -> x @1000
    op middle forward : x -> y @1000
    op after forward : y -> z @1000
    op last backward : x z -> y @1000
  )");
  const Plan plan = plan_of(trace,
                            "first middle offload:x free:x after prefetch:x last free_host:x "
                            "free:x free:y free:z",
                            {64_MiB, 64_MiB});
  const auto evaluation = evaluate_in_full(trace, plan, plain_profile(), {.keep_spans = true});
  ASSERT_TRUE(evaluation) << evaluation.error().message;
  const Explanation why = explain(trace, plan, *evaluation);
  // `after` writes where x was, whose copy is not out yet; `last` reads x, which is not in again.
  std::vector<std::string> blamed;
  for (const Loss& loss : why.losses)
    blamed.push_back(trace[plan.steps[loss.plan_step].op()].name + ": " + loss.waited_for);
  std::sort(blamed.begin(), blamed.end());
  EXPECT_EQ(blamed, (std::vector<std::string>{"after: offload of x", "last: prefetch of x"}));
}

}  // namespace
}  // namespace superneurons
