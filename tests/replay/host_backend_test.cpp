// The host backend with kernels that misbehave, and its streams on their own.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

#include "memory/allocator.h"
#include "replay/host_streams.h"
#include "replay/replay_backend.h"
#include "simulator/execute.h"
#include "tests/check/mini_plan.h"
#include "tests/mini_trace.h"

namespace superneurons {
namespace {

/// Kernels that a test writes itself.
class Script final : public Kernels {
 public:
  explicit Script(std::function<Status(const KernelCall&)> run) : run_(std::move(run)) {}
  Status prepare(const Trace&, std::uint64_t) override { return Ok{}; }
  Status run(const KernelCall& call, void*) override { return run_(call); }

 private:
  std::function<Status(const KernelCall&)> run_;
};

constexpr std::string_view kNet = R"(
  tensor x 1000 input carry
  tensor y 1500 activation
  op first forward : x -> y ws=100
  op second forward : y -> y
)";

struct Executed {
  Status status = Ok{};
  Status guards = Ok{};
  Measured measured;
};

Executed execute_script(std::function<Status(const KernelCall&)> run, bool guards,
                        int training_steps = 2) {
  const Trace trace = mini(kNet);
  const Plan plan = mini_plan(trace, "run first\noffload y\nrun second\nfree y\nfree_host y\n");
  const Bytes guard = guards ? kAllocationUnit : Bytes{};
  const Placement placement = *place(trace, plan, 1_MiB, {.guard = guard});
  const Program program = build_program(trace, plan, placement);
  ReplayBackendOptions options;
  options.arena = placement.placed_peak;
  options.host_pool = placement.host_peak;
  options.guard = guard;
  options.keep_spans = true;
  auto backend = make_host_backend(std::make_unique<Script>(std::move(run)), options);
  if (!backend) return {backend.error(), Ok{}, {}};
  Executed executed;
  executed.status = execute(trace, program, **backend, {.training_steps = training_steps});
  executed.guards = (*backend)->check_guards();
  executed.measured = (*backend)->measured();
  return executed;
}

TEST(Guards, a_kernel_that_keeps_within_its_ranges_passes) {
  const Executed executed = execute_script(
      [](const KernelCall& call) -> Status {
        std::fill_n(call.writes[0], 1500, std::byte{7});
        if (call.workspace != nullptr) std::fill_n(call.workspace, 100, std::byte{7});
        return Ok{};
      },
      true);
  EXPECT_TRUE(executed.status);
  EXPECT_TRUE(executed.guards);
}

TEST(Guards, one_byte_past_the_end_is_caught) {
  const Executed executed = execute_script(
      [](const KernelCall& call) -> Status {
        if (call.op.index == 1) call.writes[0][1500] ^= std::byte{1};
        return Ok{};
      },
      true);
  EXPECT_TRUE(executed.status);
  ASSERT_FALSE(executed.guards);
  EXPECT_EQ(executed.guards.error().message, "op second wrote 1 bytes past the end of y");
}

TEST(Guards, a_word_before_the_workspace_is_caught) {
  const Executed executed = execute_script(
      [](const KernelCall& call) -> Status {
        if (call.workspace != nullptr) call.workspace[-4] ^= std::byte{1};
        return Ok{};
      },
      true);
  ASSERT_FALSE(executed.guards);
  EXPECT_EQ(executed.guards.error().message,
            "op first wrote 4 bytes before the start of workspace");
}

TEST(HostBackend, an_error_of_a_kernel_stops_the_rest_and_is_returned) {
  int runs = 0;
  const Executed executed = execute_script(
      [&](const KernelCall&) -> Status {
        if (++runs == 3) return Error{ErrorCode::device, "broken"};
        return Ok{};
      },
      false, 5);
  ASSERT_FALSE(executed.status);
  EXPECT_EQ(executed.status.error().message,
            "training step 1, plan step 0, op first (first) on stream compute: broken");
  EXPECT_EQ(runs, 3);
}

TEST(HostBackend, an_exception_of_a_kernel_is_an_error) {
  const Executed executed =
      execute_script([](const KernelCall&) -> Status { throw std::bad_alloc(); }, false);
  ASSERT_FALSE(executed.status);
  EXPECT_EQ(executed.status.error().code, ErrorCode::device);
}

TEST(HostBackend, times_steps_and_commands) {
  const Executed executed = execute_script(
      [](const KernelCall&) -> Status {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        return Ok{};
      },
      false, 3);
  ASSERT_TRUE(executed.status);
  ASSERT_EQ(executed.measured.steps.size(), 3U);
  for (const Nanoseconds ns : executed.measured.steps) EXPECT_GE(ns.count, 4000000);
  ASSERT_EQ(executed.measured.spans.size(), 3U);
  EXPECT_GE((executed.measured.spans[0].end - executed.measured.spans[0].start).count, 2000000);
  EXPECT_GE(executed.measured.spans[2].start, executed.measured.spans[1].end);  // y in place
}

TEST(HostBackend, addresses_outside_the_arena_are_refused) {
  const Trace trace = mini(kNet);
  const Plan plan = mini_plan(trace, "run first\nrun second\nfree y\n");
  const Placement placement = *place(trace, plan, 1_MiB);
  const Program program = build_program(trace, plan, placement);
  ReplayBackendOptions options;
  options.arena = placement.placed_peak - kAllocationUnit;
  auto backend = make_host_backend(
      std::make_unique<Script>([](const KernelCall&) -> Status { return Ok{}; }), options);
  ASSERT_TRUE(backend);
  const Status status = execute(trace, program, **backend);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::device);
  EXPECT_NE(status.error().message.find("op first (first) on stream compute: "), std::string::npos)
      << status.error().message;
}

TEST(HostStreams, a_wait_is_for_the_latest_record_before_it) {
  HostStreams streams;
  std::vector<int> order;
  const auto slow = [&](int number) {
    return [&order, number] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      order.push_back(number);
    };
  };
  for (int step = 0; step < 20; ++step) {
    streams.wait(Stream::compute, 0);  // of the step before: nothing in the first
    streams.post(Stream::compute, slow(2 * step));
    streams.record(Stream::compute, 1);
    streams.wait(Stream::offload, 1);
    streams.post(Stream::offload, slow(2 * step + 1));
    streams.record(Stream::offload, 0);
  }
  streams.sync();
  ASSERT_EQ(order.size(), 40U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(HostStreams, issuing_does_not_block) {
  HostStreams streams;
  std::atomic<bool> open = false;
  streams.post(Stream::prefetch, [&] {
    while (!open) std::this_thread::yield();
  });
  streams.record(Stream::prefetch, 3);
  streams.wait(Stream::compute, 3);
  int ran = 0;
  for (int i = 0; i < 1000; ++i) streams.post(Stream::compute, [&] { ++ran; });
  EXPECT_FALSE(open);  // got here although the stream waits
  open = true;
  streams.sync();
  EXPECT_EQ(ran, 1000);
}

}  // namespace
}  // namespace superneurons
