// What a CUDA program did on its device, in the order in which it issued it, from its activity log.
//
//     log, any order     by call            by the host's time          in order of issue
//     kernel call 7      call 7 thread 1    range opens                 allocation 0
//     call 7        ──►  kernel        ──►  memory allocated       ──►  launch 0  in range 0
//     range opens        call 8 ...         launch (kernel of call 7)   launch 1 ...
//
// Both sorts are external: a log of any size is read in bounded memory. What stays there is a word
// per launch, and ranges and allocations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/result.h"
#include "tracer/activity_reader.h"
#include "tracer/spill.h"

namespace superneurons {

inline constexpr std::uint32_t kNone = UINT32_MAX;

/// A kernel, copy or memset. Plain data: many of them lie in a file. Times in ns.
struct Launch {
  std::int64_t start = 0, end = 0;  // on the device
  std::int64_t issued = 0;          // by the host
  std::int64_t sync_ns = 0;         // that the host waited for the device after it
  std::int64_t bytes = 0;           // of copies and memsets
  std::uint32_t name = 0;           // ProgramActivity::names
  std::uint32_t thread = 0;
  std::uint32_t range = kNone;  // innermost one that it was issued in
  DeviceWork kind = DeviceWork::kernel;
};

/// An NVTX range that something was launched in.
struct MarkedRange {
  std::uint32_t name = 0;
  std::uint32_t parent = kNone;
  std::uint32_t first = 0;  // launch that it opened before
};

/// The sum of two times, held where a trace would be refused for it: a damaged log must not make it
/// overflow.
inline std::int64_t add_times(std::int64_t a, std::int64_t b) {
  return std::min(a + b, std::int64_t{1} << 58);
}

/// Driver memory from before launch `born` until before launch `freed` (kNone: to the end).
struct DriverAllocation {
  std::uint64_t address = 0;
  std::int64_t bytes = 0;
  std::uint32_t born = 0;
  std::uint32_t freed = kNone;
};

/// Launches [first, last) that were issued while a range was open.
struct RangeSpan {
  std::uint32_t first = 0, last = 0;
};

struct ProgramActivity {
  explicit ProgramActivity(RowStore<Launch> rows) : launches(std::move(rows)) {}
  std::vector<std::string> names;
  RowStore<Launch> launches;
  std::vector<std::uint32_t> tokens;  // of each launch: equal for the same kernel, or the same copy
  std::vector<bool> kernels;          // of each launch: it is one
  std::vector<MarkedRange> ranges;
  std::vector<DriverAllocation> allocations;
  std::vector<RangeSpan> spans;        // of the range that was asked for, not those inside another
  std::vector<std::string> outermost;  // names of outermost ranges, a few, for messages
  std::string command;
  std::int64_t dropped = 0;
  std::int64_t uncalled = 0;  // launches whose API call was not recorded
  bool complete = false;      // the log has its end record
};

struct ActivityInput {
  std::string path;                 // "": `text`
  std::string_view text{};          // a log in memory
  std::string name = "the log";     // of `text`, for errors
  std::string folder = "/tmp";      // for temporary files
  std::size_t memory = 192U << 20;  // bytes that are sorted in memory
};

/// `range`: whose spans are wanted, or "". Errors of read_activities().
Result<ProgramActivity> program_activity(const ActivityInput& input, const std::string& range);

}  // namespace superneurons
