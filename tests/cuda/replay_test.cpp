// The CUDA backend: results equal to the bit, an arena of exactly the budget, guards, errors.
#include <gtest/gtest.h>

#ifdef SUPERNEURONS_CUDA
#include <functional>

#include "memory/allocator.h"
#include "memory/placement.h"
#include "replay/cuda/choices.h"
#include "replay/reference.h"
#include "replay/replay.h"
#include "simulator/execute.h"
#include "tests/check/mini_plan.h"
#include "tests/cuda/cuda_network.h"
#include "tests/cuda/gpu.h"
#include "tests/mini_trace.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

using Ran = Result<Run>;

ReplayOptions on_cuda(KernelSet kernels, bool stress = false) {
  ReplayOptions options;
  options.on_cuda = true;
  options.kernels = kernels;
  options.stress = stress;
  return options;
}
ReplayOptions guarded(KernelSet kernels) {
  ReplayOptions options = on_cuda(kernels);
  options.guards = true;
  return options;
}

/// A random plan with budgets in which it places.
Plan random_plan(const Trace& trace, std::uint64_t seed) {
  Plan plan = random_lawful_plan(trace, seed);
  plan.budget.host = 1024_MiB;
  if (const auto arena = smallest_arena(trace, plan)) plan.budget.device = *arena;
  return plan;
}

/// "" if the plan agrees with `reference`, else what is wrong.
std::string compare(const Trace& trace, const Run& reference, const Plan& plan,
                    const ReplayOptions& options) {
  const Ran run = run_plan(trace, plan, options);
  if (!run) return run.error().message;
  return difference(trace, reference.checksums, run->checksums);
}

class CudaReplay : public CudaTest {};

TEST_F(CudaReplay, surrogates_compute_the_bytes_of_the_host) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Trace trace = random_trace(seed, {.layers = 8, .largest = 100'000_B});
    const Plan plan = random_plan(trace, seed);
    ReplayOptions on_host;
    on_host.kernels = KernelSet::verify;
    const Ran host = run_plan(trace, reference_plan(trace, plan), on_host);
    ASSERT_TRUE(host) << host.error().message;
    EXPECT_EQ(compare(trace, *host, plan, on_cuda(KernelSet::verify)), "") << "seed " << seed;
    EXPECT_EQ(compare(trace, *host, plan, on_cuda(KernelSet::verify, true)), "") << "seed " << seed;
    EXPECT_EQ(compare(trace, *host, plan, guarded(KernelSet::verify)), "") << "seed " << seed;
  }
}

TEST_F(CudaReplay, native_results_are_equal_to_the_bit_whatever_the_plan) {
  auto trace = lower(every_layer(), {.batch = 6});
  ASSERT_TRUE(trace);
  ASSERT_TRUE(enumerate_choices(*trace, 256_MiB, false));
  const Plan kept = reference_plan(*trace, keep_all_plan(*trace));
  const Ran reference = run_plan(*trace, kept, on_cuda(KernelSet::native));
  ASSERT_TRUE(reference) << reference.error().message;
  ASSERT_EQ(reference->losses.size(), 3U);
  EXPECT_NEAR(reference->losses[0], 2.3, 2);  // of ten classes, before any training
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const Plan plan = random_plan(*trace, seed);
    EXPECT_EQ(compare(*trace, *reference, plan, on_cuda(KernelSet::native)), "") << seed;
    EXPECT_EQ(compare(*trace, *reference, plan, on_cuda(KernelSet::native, true)), "") << seed;
  }
  EXPECT_EQ(compare(*trace, *reference, kept, guarded(KernelSet::native)), "");
}

TEST_F(CudaReplay, losses_come_close_to_those_of_the_host) {
  const auto trace = lower(*find_network("small_cnn"), {.batch = 16});
  ASSERT_TRUE(trace);
  const Plan plan = reference_plan(*trace, keep_all_plan(*trace));
  ReplayOptions options;
  options.training_steps = 5;
  const Ran host = run_plan(*trace, plan, options);
  options.on_cuda = true;
  const Ran cuda = run_plan(*trace, plan, options);
  ASSERT_TRUE(host) << host.error().message;
  ASSERT_TRUE(cuda) << cuda.error().message;
  ASSERT_EQ(cuda->losses.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(host->losses[i], cuda->losses[i], 1e-2);
  EXPECT_LT(cuda->losses[4], cuda->losses[0]);
}

TEST_F(CudaReplay, the_arena_is_exactly_the_budget) {
  const Trace trace = random_trace(3, {.layers = 10, .largest = 1_MiB});
  Plan plan = random_plan(trace, 3);
  const Ran run = run_plan(trace, plan, on_cuda(KernelSet::verify));
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->measured.peak, plan.budget.device);
  plan.budget.device -= kAllocationUnit;
  const Ran refused = run_plan(trace, plan, on_cuda(KernelSet::verify));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::does_not_fit);
}

TEST_F(CudaReplay, takes_one_piece_of_device_memory) {
  std::size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  const auto backend = make_cuda_backend(make_cuda_surrogate_kernels(SurrogateMode::verify),
                                         {.arena = 512_MiB, .host_pool = 1_MiB});
  ASSERT_TRUE(backend) << backend.error().message;
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_GE(before - after, std::size_t{512} << 20);
  EXPECT_LE(before - after, std::size_t{532} << 20);  // pages of streams and of two words
}

TEST_F(CudaReplay, more_memory_than_there_is_is_an_answer) {
  const Bytes too_much{std::int64_t{1} << 50};
  const auto device =
      make_cuda_backend(make_cuda_surrogate_kernels(SurrogateMode::verify), {.arena = too_much});
  ASSERT_FALSE(device);
  EXPECT_EQ(device.error().code, ErrorCode::does_not_fit);
  EXPECT_NE(device.error().message.find("free"), std::string::npos) << device.error().message;
  const auto host = make_cuda_backend(make_cuda_surrogate_kernels(SurrogateMode::verify),
                                      {.arena = 1_MiB, .host_pool = too_much});
  ASSERT_FALSE(host);
  EXPECT_EQ(host.error().code, ErrorCode::does_not_fit);
  const auto fits = make_cuda_backend(make_cuda_surrogate_kernels(SurrogateMode::verify),
                                      {.arena = 1_MiB, .host_pool = 1_MiB});
  EXPECT_TRUE(fits);  // the refusals left nothing behind
}

/// Kernels that a test writes itself.
class Script final : public Kernels {
 public:
  using Body = std::function<void(const KernelCall&, cudaStream_t)>;
  explicit Script(Body body) : body_(std::move(body)) {}
  Status prepare(const Trace&, std::uint64_t) override { return Ok{}; }
  Status run(const KernelCall& call, void* stream) override {
    body_(call, static_cast<cudaStream_t>(stream));
    return Ok{};
  }

 private:
  Body body_;
};

Status guards_after(Script::Body body) {
  const Trace trace = mini(R"(
    tensor x 1000 input carry
    tensor y 1500 activation
    op first forward : x -> y ws=100
    op second forward : y -> y
  )");
  const Plan plan = mini_plan(trace, "run first\nrun second\nfree y\n");
  const Placement placement = *place(trace, plan, 1_MiB, {.guard = kAllocationUnit});
  const Program program = build_program(trace, plan, placement);
  auto backend = make_cuda_backend(std::make_unique<Script>(std::move(body)),
                                   {.arena = placement.placed_peak, .guard = kAllocationUnit});
  if (!backend) return backend.error();
  if (Status ran = execute(trace, program, **backend, {}); !ran) return ran;
  return (*backend)->check_guards();
}

TEST_F(CudaReplay, guards_catch_one_byte_past_the_end) {
  EXPECT_TRUE(guards_after([](const KernelCall& call, cudaStream_t stream) {
    (void)cudaMemsetAsync(call.writes[0], 7, 1500, stream);
  }));
  const Status past = guards_after([](const KernelCall& call, cudaStream_t stream) {
    if (call.op.index == 1) (void)cudaMemsetAsync(call.writes[0], 7, 1501, stream);
  });
  ASSERT_FALSE(past);
  EXPECT_NE(past.error().message.find("second"), std::string::npos) << past.error().message;
  EXPECT_NE(past.error().message.find("outside of y"), std::string::npos) << past.error().message;
  EXPECT_FALSE(guards_after([](const KernelCall& call, cudaStream_t stream) {
    if (call.workspace != nullptr) (void)cudaMemsetAsync(call.workspace - 1, 7, 1, stream);
  }));
}

TEST_F(CudaReplay, timed_kernels_take_the_recorded_time) {
  const Trace trace = mini(R"(
    tensor w 64K parameter carry
    op long forward : w -> w @3000000
    op brief forward : w -> w @50000
  )");
  ReplayOptions options = on_cuda(KernelSet::timed);
  options.keep_spans = true;
  const Ran run = run_plan(trace, reference_plan(trace, keep_all_plan(trace)), options);
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_EQ(run->measured.steps.size(), 3U);
  ASSERT_EQ(run->measured.spans.size(), 2U);
  const auto& spans = run->measured.spans;
  EXPECT_NEAR(static_cast<double>((spans[0].end - spans[0].start).count), 3e6, 1e5);
  EXPECT_NEAR(static_cast<double>((spans[1].end - spans[1].start).count), 5e4, 1e4);
  EXPECT_NEAR(static_cast<double>(run->measured.steps[2].count), 3.05e6, 2e5);
}

TEST_F(CudaReplay, copies_run_beside_kernels) {
  const Trace trace = mini(R"(
    tensor w 64K parameter carry
    tensor y 256M activation
    op make forward : w -> y @1000
    op think forward : w -> w @20000000
    op use backward : y w -> w @1000
  )");
  Plan plan = mini_plan(trace,
                        "run make\noffload y\nrun think\nfree y\nprefetch y\nrun use\nfree y\n"
                        "free_host y\n");
  plan.budget = {1024_MiB, 1024_MiB};
  ReplayOptions options = on_cuda(KernelSet::timed);
  options.keep_spans = true;
  const Ran run = run_plan(trace, plan, options);
  ASSERT_TRUE(run) << run.error().message;
  const auto& spans = run->measured.spans;
  ASSERT_EQ(spans.size(), 5U);  // make, offload, think, prefetch, use
  EXPECT_LT(spans[1].end, spans[2].end) << "the offload hides behind the kernel";
  EXPECT_LT(spans[3].start, spans[2].end) << "and so does the start of the prefetch";
  EXPECT_GE(spans[4].start, spans[3].end) << "the reader waits for it";
}

}  // namespace
}  // namespace superneurons
#else
TEST(CudaReplay, is_built) { GTEST_SKIP() << "built without CUDA"; }
#endif
