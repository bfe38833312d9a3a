// Device times of a traced program when nobody traces it: what the program clock
// (simulator/model_backend.h) reckons with.
#pragma once

#include <algorithm>

#include "ir/device_profile.h"
#include "ir/trace.h"

namespace superneurons {

/// A recorded time lasts from the start of an op's first kernel to the end of its last. While it is
/// traced, the host is late with the kernels in between, and the device idles; without, they follow
/// each other with the device's own gap:
///
///     traced     kkkk......kk.....kkkkkkk     recorded ns
///     untraced   kkkk.kk.kkkkkkk              kernels and gaps, what this returns
///
/// Other choices than the recorded one, of which the kernels are not known, keep their time.
inline Nanoseconds program_time(const Op& op, std::uint32_t choice, const DeviceProfile& profile) {
  const Nanoseconds recorded = op.choices[choice].ns;
  if (choice != op.recorded || op.kernels.empty()) return recorded;
  const Nanoseconds gap = std::max(profile.gap_ns, 0_ns);
  Nanoseconds busy{};
  for (const Kernel& kernel : op.kernels) busy = later(later(busy, kernel.ns), gap);
  return std::min(recorded, busy - gap);
}

/// Whether the op is of one multi-tensor launch with the op before: then no gap lies between.
inline bool is_joined(const Trace& trace, std::uint32_t op) {
  return op > 0 && trace.ops[op].launch_group >= 0 &&
         trace.ops[op - 1].launch_group == trace.ops[op].launch_group;
}

}  // namespace superneurons
