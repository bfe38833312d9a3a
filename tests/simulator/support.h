// Profiles and plans for the simulator tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "ir/device_profile.h"
#include "ir/plan.h"
#include "tests/mini_trace.h"

namespace superneurons {

/// Copies of at least 1000 bytes take 1 ns per byte; all else takes no time.
inline DeviceProfile plain_profile() {
  DeviceProfile profile;
  profile.offload = {{{{1000}, {1000}}}, 1.0};
  profile.prefetch = profile.offload;
  return profile;
}

inline TensorId tensor_of(const Trace& trace, const std::string& name) {
  for (std::uint32_t i = 0; i < trace.tensors.size(); ++i)
    if (trace.tensors[i].name == name) return {i};
  return {~0U};
}

/// A plan from words like "f1 offload:a free:a f2 prefetch:a b1"; carries live on the device.
inline Plan plan_of(const Trace& trace, const std::string& text, Budget budget = {1_MiB, 1_MiB}) {
  Plan plan;
  plan.policy = "by hand";
  plan.budget = budget;
  plan.begin.assign(trace.carry.size(), {Place::device});
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    at = end + 1;
    const std::size_t colon = word.find(':');
    if (word.empty()) continue;
    if (colon == std::string::npos) {
      for (std::uint32_t op = 0; op < trace.ops.size(); ++op)
        if (trace.ops[op].name == word) plan.steps.push_back(run_step({op}, 0));
      continue;
    }
    for (std::size_t kind = 0; kind < kStepKindNames.size(); ++kind)
      if (kStepKindNames[kind] == word.substr(0, colon))
        plan.steps.push_back(
            tensor_step(static_cast<StepKind>(kind), tensor_of(trace, word.substr(colon + 1))));
  }
  return plan;
}

}  // namespace superneurons
