// Traces and a device that the tests of policies share.
#pragma once

#include <string>
#include <vector>

#include "networks/network.h"
#include "policies/policy.h"
#include "tests/mini_trace.h"

namespace superneurons {

struct NamedTrace {
  std::string name;
  Trace trace;
};

/// Small, but with everything that a policy can trip over; `chain` uses the built-in kinds.
std::vector<NamedTrace> policy_traces();

/// A training step of `layers` layers of convolution, batch norm and ReLU, where time and bytes are
/// such that copies hide behind the ops.
Trace layered_trace(int layers);

/// A built-in network with durations from the cost model.
Trace network_trace(const std::string& network, Lowering lowering, std::int64_t batch);

/// 1 byte per ns each way, no latency.
DeviceProfile slow_link();

inline PlanRequest request_for(std::string policy, Bytes device, Bytes host = 1_GiB) {
  PlanRequest request;
  request.policy = std::move(policy);
  request.budget = {device, host};
  return request;
}

/// make_plan without a simulator.
inline Result<Plan> plan_for(const Trace& trace, const PlanRequest& request) {
  return make_plan(trace, slow_link(), request, {});
}

/// Bytes its plan needs when nothing limits it.
Bytes peak_of(const Trace& trace, const std::string& policy);

}  // namespace superneurons
