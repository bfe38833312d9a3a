// The seam between a tracer of the device and what is done with its records: kept in memory
// (cuda/cupti_collector.h), written to a file as they come (activity_writer.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tracer/activity.h"

namespace superneurons {

enum class DeviceWork : std::uint8_t { kernel, copy, set };

/// A kernel, copy or memset on the device. Times in ns on the tracer's clock.
struct SeenWork {
  DeviceWork kind = DeviceWork::kernel;
  std::uint32_t call = 0;  // correlation: of the API call that launched it; a graph launches many
  std::uint32_t stream = 0;
  std::int64_t start = 0, end = 0;
  std::int64_t bytes = 0;  // of a copy or memset
};

/// CUPTI's word for work whose times it could not collect: to be counted as lost, for an op that
/// began at 0 would last as long as the program.
inline bool is_timeless(const SeenWork& work) { return work.start == 0 && work.end == 0; }

/// An API call of the host that launches, copies, allocates or waits.
struct SeenCall {
  std::uint32_t call = 0;  // correlation; calls are numbered in the order in which they are made
  std::uint32_t thread = 0;
  std::int64_t start = 0, end = 0;
};

/// Device memory that the driver gave or took back.
struct SeenMemory {
  bool allocates = true;
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  std::int64_t at = 0;
};

/// An NVTX range begins or ends.
struct SeenMark {
  std::uint32_t id = 0;      // of the range
  std::uint32_t thread = 0;  // 0: a range of the process
  bool begins = true;
  std::int64_t at = 0;
};

/// Names in a log, and bytes of all of them together.
inline constexpr std::size_t kMostNames = 1U << 20;
inline constexpr std::size_t kMostNameBytes = 64U << 20;

/// A range's name without what makes each instance of it another: PyTorch's emit_nvtx gives
/// "aten::mul, seq = 7, op_id = 9".
inline std::string_view plain_range_name(std::string_view name) {
  for (const std::string_view tail : {", seq = ", ", op_id = ", ", sizes = "})
    name = name.substr(0, name.find(tail));
  return name;
}

/// Receives records in any order, from one thread at a time. Does not throw.
class ActivitySink {
 public:
  virtual ~ActivitySink() = default;
  virtual void work(const SeenWork& work, std::string_view name) noexcept = 0;
  virtual void tag(const TagActivity& tag) noexcept = 0;
  virtual void call(const SeenCall& call, std::string_view name) noexcept = 0;
  virtual void memory(const SeenMemory& memory) noexcept = 0;
  virtual void mark(const SeenMark& mark, std::string_view name) noexcept = 0;
  virtual void dropped(std::int64_t records) noexcept = 0;
  /// A buffer of records is through: what is held back may go.
  virtual void flush() noexcept = 0;
};

}  // namespace superneurons
