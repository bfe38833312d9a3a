// DeviceProfile: what the simulator must know of a machine. Text form: one JSON object
// (traces/FORMAT.md, ir/profile_io.h), measured by `superneurons calibrate` or from a data sheet.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/units.h"

namespace superneurons {

struct TransferPoint {
  Bytes bytes{};
  Nanoseconds ns{};
};
/// One direction of the host link. Piecewise linear over the measured points, latency plus
/// bytes / bandwidth beyond them.
struct TransferCurve {
  using Point = TransferPoint;
  std::vector<Point> points;  // ascending in bytes, at least one
  double bytes_per_ns = 0;    // asymptotic bandwidth beyond the last point (> 0)
};
Nanoseconds transfer_time(const TransferCurve& curve, Bytes bytes);

/// Kernels run slower while copies run: time × (1 + factor).
struct Interference {
  double offload = 0;   // while a device-to-host copy runs
  double prefetch = 0;  // while a host-to-device copy runs
  double both = 0;      // while both run
};

/// What ops of a kind reach of the device's own rates, and what they cost besides. How keys name
/// kinds and how this becomes a time: networks/roofline.h.
struct Efficiency {
  double flops = 1;
  double bandwidth = 1;
  Nanoseconds floor_ns{};  // of the smallest op: its kernels start and end
};

struct DeviceProfile {
  std::string name;       // "h200"
  std::string device;     // as the driver prints it
  bool measured = false;  // false: from a data sheet
  std::string origin;     // command, driver, library versions, date
  Bytes device_memory{};
  Bytes host_memory{};           // pinned pool available by default
  TransferCurve offload;         // device to host
  TransferCurve prefetch;        // host to device
  double both_bytes_per_ns = 0;  // both directions together (fluid sharing); 0: no sharing loss
  Interference memory_bound;     // slowdown of kernels bound by device memory
  Interference compute_bound;    // of kernels bound by arithmetic
  Nanoseconds launch_ns{};       // host time to issue a kernel
  Nanoseconds copy_issue_ns{};   // host time to issue an asynchronous copy
  Nanoseconds event_ns{};        // host time to record an event or to wait on one
  Nanoseconds gap_ns{};          // idle device time between two queued kernels of one stream
  Nanoseconds wait_ns{};   // device time from the end of work to the start of what waited for it
  Nanoseconds alloc_ns{};  // cudaMalloc + cudaFree of one tensor
  double pin_ns_per_byte = 0;  // pinning host memory
  double flops_per_ns = 0;     // peak fp32
  double tf32_flops_per_ns = 0;
  double memory_bytes_per_ns = 0;                // device-memory bandwidth
  std::map<std::string, Efficiency> efficiency;  // by op kind and variant
};

}  // namespace superneurons
