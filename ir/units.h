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
