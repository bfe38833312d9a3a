// CUPTI activity tracing of this process (structures by toolkit version, traces.md of CUPTI's own
// docs: "Activity API"). One collector at a time: CUPTI's buffer callbacks carry no user data.
#pragma once

#include <memory>
#include <string>

#include "tracer/activity.h"
#include "tracer/activity_sink.h"

namespace superneurons {

class CuptiCollector {
 public:
  /// Starts recording kernels, copies, memsets and the tags they were launched under. Error device
  /// where CUPTI refuses, e.g. because another tool (torch.profiler, nsys) has it.
  static Result<std::unique_ptr<CuptiCollector>> start();
  /// The same, and API calls, driver allocations and NVTX ranges of the whole program, all into
  /// `sink`, which stop_into() gives back.
  static Result<std::unique_ptr<CuptiCollector>> start_into(std::unique_ptr<ActivitySink> sink);
  ~CuptiCollector();
  CuptiCollector(const CuptiCollector&) = delete;
  CuptiCollector& operator=(const CuptiCollector&) = delete;

  /// Device work issued by this thread until pop_tag() belongs to `tag`.
  static void push_tag(std::uint64_t tag);
  static void pop_tag();

  /// Hands on what the device is done with, from any thread that is not CUPTI's.
  void flush();
  /// Stops, waits for the device's last records and returns all. Call once.
  Result<ActivityLog> stop();
  /// Likewise; the sink has got all.
  std::unique_ptr<ActivitySink> stop_into();

 private:
  CuptiCollector() = default;
  bool whole_program_ = false;
  bool running_ = false;
};

/// ns on the clock of all records; 0 where CUPTI does not tell.
std::int64_t cupti_now();

/// "CUPTI 13.0 (API 130001)".
std::string cupti_version();

}  // namespace superneurons
