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

/// Device time of an op in each training step from `first_step` on in which it was seen on the
/// device. A step without any record of it says nothing of its time.
std::vector<Nanoseconds> seen_spans(const Attribution& attribution, std::size_t op, int first_step);

/// What a recording lost, over the training steps from `first_step` on.
struct Losses {
  std::int64_t dropped = 0;  // records that the tracer says it lost
  std::size_t orphans = 0;   // device activities that belong to no op
  Nanoseconds orphan_ns{};
  std::size_t incomplete_ops = 0;  // that were seen in one training step and not in another

  bool exact() const { return dropped == 0 && incomplete_ops == 0; }
  Losses& operator+=(const Losses& other);
};
Losses losses_of(const ActivityLog& log, const Attribution& attribution, int first_step);
/// "no records lost", "3 records dropped, 2 device activities (1.2 us) of no op".
std::string describe(const Losses& losses);

/// The median of a non-empty list (lower of the two middle ones).
Nanoseconds median(std::vector<Nanoseconds> values);

}  // namespace superneurons
