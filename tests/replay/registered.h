// What the suites over the registry of policies share.
#pragma once

#include <string>
#include <vector>

#include "ir/device_profile.h"
#include "policies/policy.h"

namespace superneurons {

/// Copies are slow beside kernels, so that plans which move much are told from those that do not.
inline DeviceProfile slow_link() {
  DeviceProfile profile;
  profile.name = "slow_link";
  profile.device_memory = profile.host_memory = 1_GiB;
  profile.offload.points = profile.prefetch.points = {{1_B, 10_ns}};
  profile.offload.bytes_per_ns = profile.prefetch.bytes_per_ns = 1;
  profile.flops_per_ns = profile.tf32_flops_per_ns = profile.memory_bytes_per_ns = 1;
  return profile;
}

/// Names of all policies and compositions.
inline std::vector<std::string> registered() {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policies()) names.emplace_back(entry.name);
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  return names;
}

}  // namespace superneurons
