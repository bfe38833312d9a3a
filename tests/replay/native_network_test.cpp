// The small network trained on the host: plans of all sorts end with the same bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ir/check.h"
#include "ir/dataflow.h"
#include "memory/placement.h"
#include "networks/network.h"
#include "replay/host_choices.h"
#include "replay/reference.h"
#include "replay/replay.h"
#include "tests/random_trace.h"
#include "tests/small_networks.h"

namespace superneurons {
namespace {

using Ran = Result<Run>;

Trace small_network(Lowering lowering, Bytes workspace_limit = 64_MiB) {
  Trace trace =
      *lower(*find_network("small_cnn"), {.batch = 4, .lowering = lowering, .rate = 0.05});
  EXPECT_TRUE(enumerate_host_choices(trace, workspace_limit, true));
  return trace;
}

/// Recomputes everything, as late as possible: nothing that the forward pass makes survives it, and
/// each backward op makes again what it needs.
class Recompute {
 public:
  explicit Recompute(const Trace& trace)
      : trace_(trace), flow_(analyze(trace)), held_(trace.tensors.size()) {}

  Plan plan() {
    plan_ = keep_all_plan(trace_);
    plan_.steps.clear();
    for (const Carry& carry : trace_.carry) held_[carry.start.index] = 0;
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      if (trace_.ops[i].phase != Phase::forward) {
        drop_forward();
        for (const Value& value : flow_[OpId{i}].needs) obtain(value);
      }
      run({i});
    }
    for (std::uint32_t i = 0; i < held_.size(); ++i)
      if (held_[i] && !carried({i})) plan_.steps.push_back(tensor_step(StepKind::free, {i}));
    plan_.budget.device = *smallest_arena(trace_, plan_);
    return plan_;
  }

 private:
  bool carried(TensorId tensor) const {
    return std::any_of(trace_.carry.begin(), trace_.carry.end(),
                       [&](const Carry& carry) { return carry.end == tensor; });
  }

  bool made_forward(TensorId tensor) const {
    const std::vector<OpId>& makers = flow_[tensor].makers;
    return !makers.empty() && trace_[makers[0]].phase == Phase::forward;
  }

  void drop_forward() {
    for (std::uint32_t i = 0; i < held_.size(); ++i)
      if (held_[i] && made_forward({i}) && !carried({i})) {
        plan_.steps.push_back(tensor_step(StepKind::free, {i}));
        held_[i].reset();
      }
  }

  void obtain(const Value& value) {
    if (held_[value.tensor.index] == value.version) return;
    const OpId maker = flow_[value.tensor].makers[value.version - 1];
    for (const Value& need : flow_[maker].rerun_needs) obtain(need);
    run(maker);
  }

  void run(OpId op) {
    const bool again = std::any_of(
        plan_.steps.begin(), plan_.steps.end(),
        [&](const PlanStep& step) { return step.kind == StepKind::run && step.op() == op; });
    plan_.steps.push_back(run_step(op, trace_[op].recorded));
    for (const Value& made : again ? flow_[op].rerun_makes : flow_[op].makes)
      held_[made.tensor.index] = made.version;
  }

  const Trace& trace_;
  Dataflow flow_;
  Plan plan_;
  std::vector<std::optional<Version>> held_;
};

std::string compare(const Trace& trace, const Run& reference, const Plan& plan,
                    const ReplayOptions& options = {}) {
  const Ran run = run_plan(trace, plan, options);
  if (!run) return run.error().message;
  for (std::size_t i = 0; i < run->losses.size(); ++i)
    if (run->losses[i] != reference.losses[i]) return "another loss";
  return difference(trace, reference.checksums, run->checksums);
}

class NativeNetwork : public testing::TestWithParam<Lowering> {};

TEST_P(NativeNetwork, learns) {
  const Trace trace = small_network(GetParam());
  ReplayOptions options;
  options.training_steps = 8;
  const Ran run = run_plan(trace, reference_plan(trace, keep_all_plan(trace)), options);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(run->losses.size(), 8U);
  EXPECT_NEAR(run->losses[0], std::log(10.0), 2);
  EXPECT_LT(run->losses[7], run->losses[0] * 0.9);
}

TEST_P(NativeNetwork, learns_with_the_blocks_of_inception_and_densenet) {
  for (const Network& net : {small_inception(), small_densenet()}) {
    Trace trace = *lower(net, {.batch = 4, .lowering = GetParam(), .rate = 0.05});
    ASSERT_TRUE(enumerate_host_choices(trace, 64_MiB, true));
    ReplayOptions options;
    options.training_steps = 8;
    const Plan plan = reference_plan(trace, keep_all_plan(trace));
    const Ran run = run_plan(trace, plan, options);
    ASSERT_TRUE(run) << net.name << ": " << run.error().message;
    EXPECT_LT(run->losses[7], run->losses[0] * 0.9) << net.name;
    const Ran again = run_plan(trace, Recompute(trace).plan(), options);
    ASSERT_TRUE(again) << net.name << ": " << again.error().message;
    EXPECT_EQ(difference(trace, run->checksums, again->checksums), "") << net.name;
  }
}

TEST_P(NativeNetwork, recomputing_everything_changes_no_bit) {
  const Trace trace = small_network(GetParam());
  const Plan plan = Recompute(trace).plan();
  EXPECT_GT(std::count_if(plan.steps.begin(), plan.steps.end(),
                          [](const PlanStep& step) { return step.kind == StepKind::run; }),
            static_cast<std::ptrdiff_t>(trace.ops.size()));
  const Plan kept = reference_plan(trace, plan);
  EXPECT_LT(plan.budget.device, kept.budget.device);
  const Ran reference = run_plan(trace, kept, {});
  ASSERT_TRUE(reference) << reference.error().message;
  EXPECT_EQ(compare(trace, *reference, plan), "");
  EXPECT_EQ(compare(trace, *reference, plan, {.stress = true}), "");
  EXPECT_EQ(compare(trace, *reference, plan, {.guards = true}), "");
}

TEST_P(NativeNetwork, random_plans_change_no_bit) {
  const Trace trace = small_network(GetParam());
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    Plan plan = random_lawful_plan(trace, seed);
    plan.budget.host = 1_GiB;
    plan.budget.device = *smallest_arena(trace, plan);
    const Ran reference = run_plan(trace, reference_plan(trace, plan), {});
    ASSERT_TRUE(reference) << reference.error().message;
    EXPECT_EQ(compare(trace, *reference, plan, {.stress = seed % 2 == 0}), "") << "seed " << seed;
  }
}

TEST_P(NativeNetwork, direct_loops_and_matrix_products_nearly_agree) {
  const Trace unrolled = small_network(GetParam());
  const Trace direct = small_network(GetParam(), 0_B);
  const Ran first = run_plan(unrolled, reference_plan(unrolled, keep_all_plan(unrolled)), {});
  const Ran second = run_plan(direct, reference_plan(direct, keep_all_plan(direct)), {});
  ASSERT_TRUE(first && second);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(first->losses[i], second->losses[i], 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Lowerings, NativeNetwork,
                         testing::Values(Lowering::native, Lowering::paper, Lowering::caffe,
                                         Lowering::mxnet));

}  // namespace
}  // namespace superneurons
