// The device of the benchmarks: about an H200, by its data sheet.
#pragma once

#include "ir/device_profile.h"

namespace superneurons {

inline DeviceProfile data_sheet() {
  DeviceProfile profile;
  profile.offload = {{{{1}, {8000}}}, 55};
  profile.prefetch = profile.offload;
  profile.both_bytes_per_ns = 93;
  profile.memory_bound = {0.03, 0.03, 0.06};
  profile.compute_bound = {0.01, 0.01, 0.02};
  profile.launch_ns = {4000};
  profile.copy_issue_ns = {3000};
  profile.event_ns = {800};
  profile.gap_ns = {900};
  profile.wait_ns = {1500};
  profile.flops_per_ns = 60e3;
  profile.memory_bytes_per_ns = 4000;
  return profile;
}

}  // namespace superneurons
