// Op costs on a device that nobody measured: arithmetic and traffic of an op over the rates of the
// device, each as far as ops of its kind reach them.
//
//     ns = floor + flops / (efficiency.flops * peak) + bytes / (efficiency.bandwidth * bandwidth)
//
// The sum rather than the larger of the two: kernels hide some of one behind the other, and fitted
// efficiencies take that up; the sum stays linear in the unknowns, so that it can be fitted.
//
// The arithmetic is that of the algorithm which libraries take for the shape, in whole tiles:
// otherwise one efficiency could not stand for all shapes of a kind. Convolutions of stride 1 with
// windows of 3x3 and more, in fp32, go to a transformed domain (Winograd: Lavin and Gray, CVPR
// 2016; FFT), where an output costs 36/16 multiplications per channel whatever the window.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/device_profile.h"
#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

/// What the roofline counts.
struct Work {
  std::string kind;     // op kind
  std::string variant;  // of convolutions: "transform", "direct", "1x1", "1x1/s" (strided)
  bool tf32 = false;
  double flops = 0;  // 0 for kinds that memory alone bounds
  double bytes = 0;  // of device memory
};

/// A fused backward op counts as the ops it fuses. `tf32`: that the device may use it.
std::vector<Work> work_of(const Op& op, bool tf32);

/// Keys of DeviceProfile::efficiency that may tell of this work, the most telling first:
/// "Conv2dForward/1x1+tf32", "Conv2dForward+tf32", "Conv2dForward/1x1", "Conv2dForward", "".
std::vector<std::string> efficiency_keys(const Work& work);

/// At least 1 ns. A rate that the profile lacks counts as infinite.
Nanoseconds roofline_time(const Op& op, const Choice& choice, const DeviceProfile& profile);

/// Error bad_usage if the profile lacks the rates that times are `how` ("scaled") by.
Status check_rates(const DeviceProfile& profile, std::string_view how);

/// Turns the times of a trace measured on `from` into what `to` would take: each choice of each op
/// times the ratio of both rooflines; host times stay. `durations` become at most `inferred`, the
/// device that of `to`, and the origin says so. The efficiencies of `from` serve for both where
/// `to` has none of its own. Error bad_usage if either profile lacks rates.
Status scale_to_device(Trace& trace, const DeviceProfile& from, const DeviceProfile& to);

}  // namespace superneurons
