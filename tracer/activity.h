// What an activity tracer saw of a device, as values: so that correlation is tested from recorded
// values, without a GPU (cf. STYLE: hardware behind one seam).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/result.h"

namespace superneurons {

/// One kernel, copy or memset on the device. Times in ns on the tracer's clock.
struct DeviceActivity {
  std::uint32_t name = 0;         // index into ActivityLog::names
  std::uint32_t correlation = 0;  // of the API call that launched it
  std::uint32_t stream = 0;
  Nanoseconds start{};
  Nanoseconds end{};
  bool kernel = true;  // false: copy or memset
};

/// An API call was made while `tag` was on top of the tracer's stack of its thread.
struct TagActivity {
  std::uint32_t correlation = 0;
  std::uint64_t tag = 0;
};

struct ActivityLog {
  std::vector<std::string> names;
  std::vector<DeviceActivity> device;
  std::vector<TagActivity> tags;
  std::int64_t dropped = 0;  // records lost by the tracer
};

/// Tags of our recordings: training step and op. Op numbers stay below 2^32.
inline std::uint64_t make_tag(int training_step, OpId op) {
  return (static_cast<std::uint64_t>(training_step + 1) << 32) | op.index;
}

/// What one op did on the device.
struct OpActivity {
  Nanoseconds span{};                 // first start to last end
  Nanoseconds busy{};                 // sum over its kernels
  std::vector<DeviceActivity> parts;  // by start
};

struct Attribution {
  std::vector<std::vector<OpActivity>> steps;  // steps[training step][op]
  std::size_t orphans = 0;                     // device activities whose call had no tag
  Nanoseconds orphan_ns{};
  Nanoseconds owned_ns{};
};

/// Gives each device activity to the op whose tag was set when it was launched. Two passes, since
/// records come in any order. Tags outside [0, steps) × [0, ops) count as orphans.
Attribution attribute(const ActivityLog& log, int steps, std::size_t ops);

/// The median of a non-empty list (lower of the two middle ones).
Nanoseconds median(std::vector<Nanoseconds> values);

}  // namespace superneurons
