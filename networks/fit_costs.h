// Efficiencies of a device's roofline fitted on recorded traces, and how far it is off on others.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/device_profile.h"
#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

/// By key (networks/roofline.h), one entry for each variant, kind and arithmetic that the traces
/// have, and "" for all others. Least squares over the recorded choices of all ops, weighted by
/// time^-3/4: between relative errors, to which long ops are as dear as short ones, and absolute
/// ones. Bounded by what a device can do: no arithmetic above its peak, no traffic above twice its
/// memory's bandwidth (caches), no negative floor.
/// The rates are those of `profile`, its efficiencies are not looked at. Error bad_input if a trace
/// was measured on another device, or not at all, or has no ops; bad_usage if the profile has no
/// rates.
Result<std::map<std::string, Efficiency>> fit_efficiency(std::span<const Trace* const> traces,
                                                         const DeviceProfile& profile);

/// The roofline beside what was recorded.
struct CostError {
  std::string trace;
  std::string held_out;  // what the fit had nothing of: "network", "batch"
  std::size_t ops = 0;
  std::size_t fitted_on = 0;   // traces
  Nanoseconds measured{};      // sum over ops
  Nanoseconds predicted{};     // likewise
  double absolute = 0;         // sum of |predicted - measured| over the measured sum
  double median = 0, p90 = 0;  // of |predicted / measured - 1| over ops
  double total() const;        // predicted / measured - 1
};

/// The roofline of `profile` as it is, against one trace.
CostError cost_error(const Trace& trace, const DeviceProfile& profile);

/// For each trace: fits all traces of other networks (a network is held out with every batch and
/// arithmetic), and, where another batch of the same network in the same arithmetic was recorded,
/// all traces but those of this batch; and compares. Errors as fit_efficiency().
Result<std::vector<CostError>> held_out_errors(std::span<const Trace> traces,
                                               const DeviceProfile& profile);

}  // namespace superneurons
