#include "ir/device_profile.h"

#include <algorithm>
#include <cmath>

namespace superneurons {
namespace {

/// Rounded up: a copy of one byte takes time. Saturates far above any real copy, low enough for
/// kLatest.
Nanoseconds rounded_up(double ns) {
  constexpr double kMost = 1LL << 58;
  return {static_cast<std::int64_t>(std::ceil(std::clamp(ns, 0.0, kMost)))};
}

}  // namespace

Nanoseconds transfer_time(const TransferCurve& curve, Bytes bytes) {
  const auto size = static_cast<double>(bytes.count);
  if (curve.points.empty()) return rounded_up(size / curve.bytes_per_ns);
  const auto above = std::upper_bound(
      curve.points.begin(), curve.points.end(), bytes,
      [](Bytes wanted, const TransferCurve::Point& point) { return wanted < point.bytes; });
  // Below the first point the cost is that point's: latency, which no smaller copy undercuts.
  if (above == curve.points.begin()) return above->ns;
  const TransferCurve::Point& low = *(above - 1);
  const double beyond = size - static_cast<double>(low.bytes.count);
  const auto start = static_cast<double>(low.ns.count);
  if (above == curve.points.end()) return rounded_up(start + beyond / curve.bytes_per_ns);
  const auto width = static_cast<double>((above->bytes - low.bytes).count);
  const auto rise = static_cast<double>((above->ns - low.ns).count);
  return rounded_up(start + rise * (beyond / width));
}

}  // namespace superneurons
