// The stop token: nothing more is planned or predicted once it is set.
#include <gtest/gtest.h>

#include <atomic>

#include "memory/placement.h"
#include "simulator/outcome.h"
#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

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

/// Sets the stop token at the prediction number `at` and counts all predictions.
struct Stopper {
  std::atomic<bool> stop{false};
  int at = 0;
  int predictions = 0;

  Predict predict(const Trace& trace, const DeviceProfile& profile) {
    return [this, inner = predictor(trace, profile, &stop)](const Plan& plan) {
      if (++predictions >= at) stop = true;
      return inner(plan);
    };
  }
};

TEST(Stop, SetBeforehandLeavesNothingPlanned) {
  const Trace trace = long_trace(4'000);
  ASSERT_FALSE(find_fault(trace));
  const DeviceProfile profile = slow_link();
  for (const char* policy : {"liveness", "liveness+offload", "liveness+recompute",
                             "liveness+offload+recompute", "liveness+recompute+offload"}) {
    Stopper stopper;
    stopper.stop = true;
    PlanRequest request = request_for(policy, 2_MiB);
    request.stop = &stopper.stop;
    const auto plan = make_plan(trace, profile, request, stopper.predict(trace, profile));
    ASSERT_FALSE(plan) << policy;
    EXPECT_EQ(plan.error().code, ErrorCode::cancelled) << plan.error().message;
    EXPECT_EQ(stopper.predictions, 0) << policy;
  }
}

TEST(Stop, DuringPlanningIsTheLastThingPredicted) {
  const Trace trace = long_trace(4'000);
  const DeviceProfile profile = slow_link();
  for (const int at : {1, 2, 4}) {
    Stopper stopper{.at = at};
    PlanRequest request = request_for("liveness+offload", 2_MiB);
    request.stop = &stopper.stop;
    const auto plan = make_plan(trace, profile, request, stopper.predict(trace, profile));
    ASSERT_FALSE(plan) << at;
    EXPECT_EQ(plan.error().code, ErrorCode::cancelled) << plan.error().message;
    EXPECT_EQ(stopper.predictions, at);
  }
}

TEST(Stop, EndsTheSearchForTheSmallestBudget) {
  const Trace trace = long_trace(4'000);
  const DeviceProfile profile = slow_link();
  Stopper stopper;
  stopper.stop = true;
  PlanRequest request = request_for("offload_recompute", 2_MiB);
  request.stop = &stopper.stop;
  const auto floor = smallest_budget(trace, profile, request, stopper.predict(trace, profile));
  ASSERT_FALSE(floor);
  EXPECT_EQ(floor.error().code, ErrorCode::cancelled) << floor.error().message;
}

}  // namespace
}  // namespace superneurons
