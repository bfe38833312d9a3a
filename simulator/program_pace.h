// How the device of a traced program goes when nobody traces it: what the program clock
// (simulator/model_backend.h) reckons with.
#pragma once

#include <cmath>
#include <vector>

#include "ir/device_profile.h"
#include "ir/trace.h"

namespace superneurons {

struct ProgramPace {
  /// What recorded device times and gaps are multiplied by. One compute stream cannot take longer
  /// than the untraced training step; where recorded times and a gap before each launch sum up to
  /// more, tracing has slowed the kernels (a device that waits for the host between them runs them
  /// slower, and their records include the start of the launch) or streams ran side by side, and
  /// all are shortened in proportion. 1 where the sum is less, as in programs that the host limits,
  /// and where the untraced step is not known.
  double device = 1;
  std::vector<bool> joined;  // by op: of one multi-tensor launch with the op before; no gap

  Nanoseconds of(Nanoseconds recorded) const {
    return {std::llround(static_cast<double>(recorded.count) * device)};
  }
};

ProgramPace program_pace(const Trace& trace, const DeviceProfile& profile);

}  // namespace superneurons
