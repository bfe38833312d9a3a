// CUPTI activity tracing of this process (structures by toolkit version, traces.md of CUPTI's own
// docs: "Activity API"). One collector at a time: CUPTI's buffer callbacks carry no user data.
#pragma once

#include <memory>

#include "tracer/activity.h"

namespace superneurons {

class CuptiCollector {
 public:
  /// Starts recording kernels, copies, memsets and the API calls that launched them. Error device
  /// where CUPTI refuses, e.g. because another tool (torch.profiler, nsys) has it.
  static Result<std::unique_ptr<CuptiCollector>> start();
  ~CuptiCollector();
  CuptiCollector(const CuptiCollector&) = delete;
  CuptiCollector& operator=(const CuptiCollector&) = delete;

  /// Device work issued by this thread until pop_tag() belongs to `tag`.
  static void push_tag(std::uint64_t tag);
  static void pop_tag();

  /// Stops, waits for the device's last records and returns all. Call once.
  Result<ActivityLog> stop();

 private:
  CuptiCollector() = default;
  bool running_ = false;
};

/// "CUPTI 13.0 (API 130001)".
std::string cupti_version();

}  // namespace superneurons
