// Training on real data on the GPU, under a budget that liveness cannot meet.
#include <gtest/gtest.h>

#ifdef SUPERNEURONS_CUDA
#include "ir/profile_io.h"
#include "memory/placement.h"
#include "networks/network.h"
#include "policies/policy.h"
#include "replay/cuda/choices.h"
#include "replay/inference.h"
#include "replay/reference.h"
#include "simulator/outcome.h"
#include "tests/cuda/gpu.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

class CudaTraining : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    data_ = *read_data_set(SUPERNEURONS_SOURCE_DIR "/data/digits.csv.gz");
  }
  /// Recorded choices alone: each convolution as cuDNN's heuristics would have it.
  Trace digits_trace(std::int64_t batch, double rate = 0.05) {
    Trace trace = *lower(*find_network("digits_resnet"), {.batch = batch, .rate = rate});
    EXPECT_TRUE(enumerate_choices(trace, 64_MiB, false));
    inputs_ = training_batches(data_, *batch_tensors(trace, data_), 1);
    return trace;
  }
  ReplayOptions options(int steps) const {
    return {.on_cuda = true, .training_steps = steps, .inputs = &inputs_, .keep_values = true};
  }

  DataSet data_;
  InputSource inputs_;
};

TEST_F(CudaTraining, batches_reach_the_tensors_wherever_a_plan_keeps_them) {
  const Trace trace = digits_trace(8);
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Plan plan = random_lawful_plan(trace, seed);
    plan.budget.host = 1_GiB;
    plan.budget.device = *smallest_arena(trace, plan);
    const auto reference = run_plan(trace, reference_plan(trace, plan), options(8));
    ASSERT_TRUE(reference) << reference.error().message;
    ReplayOptions stressed = options(8);
    stressed.stress = true;
    for (const ReplayOptions& how : {options(8), stressed}) {
      const auto run = run_plan(trace, plan, how);
      ASSERT_TRUE(run) << run.error().message;
      EXPECT_EQ(difference(reference->losses, run->losses), std::nullopt) << "seed " << seed;
      EXPECT_EQ(difference(trace, reference->checksums, run->checksums), "") << "seed " << seed;
    }
  }
}

TEST_F(CudaTraining, sees_the_batches_of_the_host) {
  const Trace plain = *lower(*find_network("digits_resnet"), {.batch = 32, .rate = 0.01});
  const Trace trace = digits_trace(32, 0.01);  // the same with algorithms of the GPU
  ReplayOptions on_host = options(6);
  on_host.on_cuda = false;
  const auto host = run_plan(plain, reference_plan(plain, keep_all_plan(plain)), on_host);
  const auto cuda = run_plan(trace, reference_plan(trace, keep_all_plan(trace)), options(6));
  ASSERT_TRUE(host) << host.error().message;
  ASSERT_TRUE(cuda) << cuda.error().message;
  for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(host->losses[i], cuda->losses[i], 2e-2) << i;
}

TEST_F(CudaTraining, learns_digits_in_less_memory_than_liveness_needs) {
  const Trace trace = digits_trace(64);
  const DeviceProfile profile = *read_profile(SUPERNEURONS_SOURCE_DIR "/traces/profiles/h200.json");
  const Predict predict = predictor(trace, profile);
  PlanRequest request{.policy = "liveness", .budget = {1_GiB, 1_GiB}};
  const auto floor = smallest_budget(trace, profile, request, predict);
  ASSERT_TRUE(floor) << floor.error().message;
  request.policy = "recompute_offload";
  const auto own_floor = smallest_budget(trace, profile, request, predict);
  ASSERT_TRUE(own_floor) << own_floor.error().message;
  EXPECT_LT(own_floor->budget, floor->budget);  // mostly the workspace of one matrix product
  request.budget.device = own_floor->budget;
  const auto plan = make_plan(trace, profile, request, predict);
  ASSERT_TRUE(plan) << plan.error().message;
  const auto run = run_plan(trace, *plan, options(110));
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_LE(run->measured.peak, request.budget.device);
  const auto reference = run_reference(trace, *plan, options(110));
  ASSERT_TRUE(reference) << reference.error().message;
  EXPECT_EQ(difference(reference->run.losses, run->losses), std::nullopt);
  EXPECT_EQ(difference(trace, reference->run.checksums, run->checksums), "");
  const auto accuracy = test_accuracy(trace, *run, data_);
  ASSERT_TRUE(accuracy) << accuracy.error().message;
  EXPECT_GT(accuracy->correct * 100, accuracy->images * 95);
}

}  // namespace
}  // namespace superneurons
#else
TEST(CudaTraining, is_built) { GTEST_SKIP() << "built without CUDA"; }
#endif
