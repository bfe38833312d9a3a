// The stop token: planning of a long trace comes back soon after it is set.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "memory/placement.h"
#include "simulator/outcome.h"
#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

constexpr std::chrono::milliseconds kSoon{300};

/// `ops` ops, forward and back; the backward half reads what forward kept.
Trace long_trace(std::uint32_t ops) {
  Trace trace;
  trace.name = "long";
  trace.capabilities.fill(Capability::exact);
  const auto tensor = [&](const char* prefix, std::uint32_t i, Role role) {
    trace.tensors.push_back(
        {.name = prefix + std::to_string(i), .bytes = {4096 + 512 * (i % 7)}, .role = role});
    return TensorId{static_cast<std::uint32_t>(trace.tensors.size() - 1)};
  };
  const auto op = [&](const char* kind, std::uint32_t i, Phase phase, std::vector<TensorId> reads,
                      TensorId write) {
    Op made{.name = kind + std::to_string(i), .kind = kind, .phase = phase};
    for (const TensorId id : reads) made.reads.push_back({id, {}, trace[id].bytes});
    made.writes.push_back({write, {}, trace[write].bytes});
    made.choices.push_back({.ns = {10'000}});
    trace.ops.push_back(made);
  };
  std::vector<TensorId> value{tensor("x", 0, Role::input)};
  trace.carry.push_back({value[0], value[0]});
  const std::uint32_t layers = ops / 2;
  for (std::uint32_t i = 0; i < layers; ++i) {
    value.push_back(tensor("y", i + 1, Role::activation));
    op(i % 2 == 0 ? "Conv2dForward" : "ReluForward", i, Phase::forward, {value[i]}, value[i + 1]);
  }
  TensorId gradient = value.back();
  for (std::uint32_t i = layers; i-- > 0;) {
    const TensorId next = tensor("g", i, Role::activation_gradient);
    op("backward", i, Phase::backward, {value[i], value[i + 1], gradient}, next);
    gradient = next;
  }
  return trace;
}

/// Time from the stop to the return of `work`, which must say cancelled; -1 if it was done before.
template <class Work>
std::chrono::milliseconds time_to_stop(std::chrono::milliseconds delay, const Work& work) {
  using Clock = std::chrono::steady_clock;
  std::atomic<bool> stop{false};
  Clock::time_point stopped_at;
  std::thread stopper([&] {
    std::this_thread::sleep_for(delay);
    stopped_at = Clock::now();
    stop = true;
  });
  const auto result = work(stop);
  const Clock::time_point back = Clock::now();
  const bool before = !stop;
  stopper.join();
  if (before) return std::chrono::milliseconds(-1);
  EXPECT_FALSE(result);
  if (!result) {
    EXPECT_EQ(result.error().code, ErrorCode::cancelled) << result.error().message;
  }
  return std::chrono::duration_cast<std::chrono::milliseconds>(back - stopped_at);
}

TEST(Stop, PlanningOfALongTraceComesBackSoon) {
  const Trace trace = long_trace(40'000);
  ASSERT_FALSE(find_fault(trace));
  const DeviceProfile profile = slow_link();
  int stopped = 0;
  for (const char* policy : {"liveness+offload", "liveness+recompute", "liveness+offload+recompute",
                             "liveness+recompute+offload"})
    for (const int delay : {20, 300, 900}) {
      const auto took = time_to_stop(std::chrono::milliseconds(delay), [&](const auto& stop) {
        PlanRequest request = request_for(policy, 20_MiB);
        request.stop = &stop;
        return make_plan(trace, profile, request, predictor(trace, profile, &stop));
      });
      EXPECT_LT(took, kSoon) << policy << " after " << delay << " ms";
      stopped += took.count() >= 0 ? 1 : 0;
    }
  EXPECT_GE(stopped, 6);
}

TEST(Stop, TheSearchForTheSmallestBudgetComesBackSoon) {
  const Trace trace = long_trace(40'000);
  const DeviceProfile profile = slow_link();
  const auto took = time_to_stop(std::chrono::milliseconds(500), [&](const auto& stop) {
    PlanRequest request = request_for("offload_recompute", 20_MiB);
    request.stop = &stop;
    return smallest_budget(trace, profile, request, predictor(trace, profile, &stop));
  });
  EXPECT_GE(took.count(), 0) << "done before the stop";
  EXPECT_LT(took, kSoon);
}

}  // namespace
}  // namespace superneurons
