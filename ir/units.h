// Quantities and ids as types, so that bytes, nanoseconds, tensors and ops cannot be mixed up.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace superneurons {

/// A count of one unit. Same-unit arithmetic only; `.count` leaves the type system.
template <class Unit>
struct Quantity {
  std::int64_t count = 0;

  friend auto operator<=>(Quantity, Quantity) = default;
  Quantity& operator+=(Quantity other) { return count += other.count, *this; }
  Quantity& operator-=(Quantity other) { return count -= other.count, *this; }
  friend Quantity operator+(Quantity a, Quantity b) { return {a.count + b.count}; }
  friend Quantity operator-(Quantity a, Quantity b) { return {a.count - b.count}; }
  friend Quantity operator*(Quantity a, std::int64_t k) { return {a.count * k}; }
};

using Bytes = Quantity<struct BytesUnit>;
using Nanoseconds = Quantity<struct NanosecondsUnit>;

/// No moment of a model is later: times saturate here, so that sums over plans, which may repeat an
/// op any number of times, never overflow. Some 36 years; sums of times in a trace stay below a
/// quarter of it.
inline constexpr Nanoseconds kLatest{std::int64_t{1} << 60};

/// time + duration (0 <= duration <= kLatest), at most kLatest.
inline constexpr Nanoseconds later(Nanoseconds time, Nanoseconds duration) {
  return {time.count + duration.count < kLatest.count ? time.count + duration.count
                                                      : kLatest.count};
}

/// The sum of two sizes (>= 0), or the largest there is.
inline constexpr Bytes saturating_add(Bytes a, Bytes b) {
  constexpr std::int64_t kMost = INT64_MAX;
  return {a.count > kMost - b.count ? kMost : a.count + b.count};
}

inline constexpr Bytes operator""_B(unsigned long long n) { return {static_cast<std::int64_t>(n)}; }
inline constexpr Bytes operator""_KiB(unsigned long long n) {
  return {static_cast<std::int64_t>(n) << 10};
}
inline constexpr Bytes operator""_MiB(unsigned long long n) {
  return {static_cast<std::int64_t>(n) << 20};
}
inline constexpr Bytes operator""_GiB(unsigned long long n) {
  return {static_cast<std::int64_t>(n) << 30};
}
inline constexpr Nanoseconds operator""_ns(unsigned long long n) {
  return {static_cast<std::int64_t>(n)};
}

/// Rounds up to a multiple of `unit` (> 0).
inline constexpr Bytes round_up(Bytes size, Bytes unit) {
  return {(size.count + unit.count - 1) / unit.count * unit.count};
}

/// A dense index into one table of a Trace (`trace.tensors[id.index]`).
template <class Table>
struct Id {
  std::uint32_t index = 0;
  friend auto operator<=>(Id, Id) = default;
};

using TensorId = Id<struct TensorTable>;
using OpId = Id<struct OpTable>;

}  // namespace superneurons

template <class Table>
struct std::hash<superneurons::Id<Table>> {
  std::size_t operator()(superneurons::Id<Table> id) const noexcept { return id.index; }
};
