// What a network is recorded under where keep_all does not fit.
#pragma once

#include <atomic>
#include <vector>

#include "networks/network.h"
#include "policies/policy.h"
#include "simulator/outcome.h"
#include "tracer/record.h"

namespace superneurons {

/// Reruns leave the times of first runs alone, copies do not, so they come last. Plans weigh times
/// estimated by `profile`, as nothing is measured yet. `stop` may be null.
inline std::vector<RecordFallback> record_fallbacks(const DeviceProfile& profile,
                                                    const std::atomic<bool>* stop) {
  std::vector<RecordFallback> all;
  for (const char* policy : {"liveness", "liveness_recompute", "recompute_offload"})
    all.push_back({policy, [policy, profile, stop](const Trace& trace, Bytes memory) {
                     Trace costed = trace;
                     estimate_durations(costed, profile);
                     const PlanRequest request = {
                         .policy = policy, .budget = {memory, profile.host_memory}, .stop = stop};
                     return make_plan(costed, profile, request, predictor(costed, profile, stop));
                   }});
  return all;
}

}  // namespace superneurons
