// Memory over layer steps: what is sampled where.
#include "memory/layer_steps.h"

#include <gtest/gtest.h>

#include "ir/check.h"
#include "tests/mini_trace.h"

namespace superneurons {
namespace {

// b is freed after c1 and made again for b1; w and its gradient are out of the paper's scope.
Trace three_layers() {
  Trace trace = mini(R"(
    tensor w 1K parameter carry
    tensor g 1K gradient
    tensor a 4K activation
    tensor b 8K activation
    tensor c 2K activation
    tensor d 2K activation_gradient
    tensor e 8K activation_gradient
    tensor k 16K activation carry
    op a1 forward : w -> a
    op b1 forward : a -> b
    op c1 forward : b -> c
    op c2 forward : c k -> c
    op cb backward : c -> d
    op bb backward : b d -> e
    op ab backward : e k -> g
    op up update once : w g -> w
  )");
  for (Op& op : trace.ops) op.layer = op.name.substr(0, 1);
  trace.ops[7].layer.clear();
  return trace;
}

Plan rebuilding(const Trace& trace) {
  Plan plan = keep_all_plan(trace);
  plan.budget = {1_GiB, 0_B};
  const auto run = [](std::uint32_t op) { return run_step({op}, 0); };
  const auto free = [](std::uint32_t tensor) { return tensor_step(StepKind::free, {tensor}); };
  plan.steps = {run(0),  run(1), run(2),  free(3), run(3), run(4),  free(4), run(1),
                free(2), run(5), free(3), free(5), run(6), free(6), run(7),  free(1)};
  return plan;
}

TEST(LayerSteps, AreSampledAtTheLayersOwnRuns) {
  const Trace trace = three_layers();
  const Plan plan = rebuilding(trace);
  ASSERT_FALSE(check(trace, plan)) << to_error(*check(trace, plan)).message;
  const std::vector<LayerStep> steps = layer_steps(trace, plan);
  struct Row {
    const char* layer;
    Phase phase;
    std::int64_t kib, tensors, peak;
  };
  // k, 16 KiB, is at home throughout; both ops of c are one step, with its highest run.
  const Row rows[] = {{"a", Phase::forward, 20, 2, 20},  {"b", Phase::forward, 28, 3, 28},
                      {"c", Phase::forward, 30, 4, 30},  {"c", Phase::backward, 24, 4, 24},
                      {"b", Phase::backward, 34, 4, 34}, {"a", Phase::backward, 24, 2, 26},
                      {"", Phase::update, 16, 1, 16}};
  ASSERT_EQ(steps.size(), std::size(rows));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].layer, rows[i].layer) << i;
    EXPECT_EQ(steps[i].phase, rows[i].phase) << i;
    EXPECT_EQ(steps[i].bytes, 1_KiB * rows[i].kib) << i;
    EXPECT_EQ(steps[i].tensors, rows[i].tensors) << i;
    EXPECT_EQ(steps[i].peak, 1_KiB * rows[i].peak) << i;
  }
  EXPECT_EQ(steps[2].plan_step, 2U);
  EXPECT_EQ(scope_peak(trace, plan), 34_KiB);
}

TEST(LayerSteps, CountOnlyTheirScope) {
  const Trace trace = three_layers();
  const Plan plan = rebuilding(trace);
  const Role parameters[] = {Role::parameter, Role::gradient};
  EXPECT_EQ(scope_peak(trace, plan, parameters), 2_KiB);
  EXPECT_EQ(layer_steps(trace, plan, parameters)[0].bytes, 1_KiB);
  EXPECT_EQ(layer_steps(trace, plan, parameters)[6].tensors, 2);
  EXPECT_EQ(scope_peak(trace, plan, {}), 0_B);
}

}  // namespace
}  // namespace superneurons
