#include <algorithm>
#include <cmath>

#include "networks/network.h"

namespace superneurons {
namespace {

constexpr double kLongestOp = 1e12;  // ns; sums of op times stay below the 2^58 of a trace

Efficiency efficiency(const DeviceProfile& profile, const std::string& kind) {
  for (const std::string& key : {kind, std::string()}) {
    const auto found = profile.efficiency.find(key);
    if (found != profile.efficiency.end()) return found->second;
  }
  return {};
}

/// Time at that rate; 0 where the profile has none.
double time_at(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

Nanoseconds roofline(const Op& op, const Choice& choice, const DeviceProfile& profile) {
  const Efficiency achieved = efficiency(profile, op.kind);
  const bool tf32 = choice.math == "tf32" && profile.tf32_flops_per_ns > 0;
  const double flops = tf32 ? profile.tf32_flops_per_ns : profile.flops_per_ns;
  const double arithmetic = time_at(op.flops, flops * achieved.flops);
  const double traffic = time_at(static_cast<double>(op.bytes_moved.count),
                                 profile.memory_bytes_per_ns * achieved.bandwidth);
  const double ns = std::ceil(std::max(arithmetic, traffic));
  return {static_cast<std::int64_t>(std::clamp(ns, 1.0, kLongestOp))};
}

}  // namespace

void estimate_durations(Trace& trace, const DeviceProfile& profile) {
  for (Op& op : trace.ops)
    for (Choice& choice : op.choices) choice.ns = roofline(op, choice, profile);
  trace.capabilities[static_cast<std::size_t>(Fact::durations)] = Capability::inferred;
  trace.device.clear();  // measured on none
  trace.origin = "cost model of " + profile.name;
  if (!profile.device.empty()) trace.origin += ", " + profile.device;
}

}  // namespace superneurons
