// Allocators over offsets: they deal in numbers, never in pointers, so that the object the
// simulator models with is the object the replay sub-allocates with.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "ir/units.h"

namespace superneurons {

/// Every range starts on, and is rounded up to, this unit (the 1 KiB blocks of the SuperNeurons
/// pool, PPoPP 2018, section 3.3.2); those of `pytorch_caching` to half of
/// it.
inline constexpr Bytes kAllocationUnit{1024};

/// A capacity that is never reached: sums of sizes in a trace stay below it.
inline constexpr Bytes kEndless{std::int64_t{1} << 62};

/// A heap over [0, capacity). The seam for plug-ins; see the registry below. What it returns is a
/// function of the calls so far: no addresses, no clock.
class Allocator {
 public:
  virtual ~Allocator() = default;
  /// Offset of a free range of at least `size` (> 0) bytes, or nothing if there is none.
  virtual std::optional<Bytes> allocate(Bytes size) = 0;
  /// Takes [offset, offset + size) out of the free space (homes, static offsets). False if
  /// occupied.
  virtual bool reserve(Bytes offset, Bytes size) = 0;
  /// Gives back what allocate or reserve took at `offset`; anything else is ignored.
  virtual void free(Bytes offset) = 0;
  virtual Bytes largest_hole() const = 0;
  /// Size an allocation of `size` bytes really takes.
  virtual Bytes rounded(Bytes size) const = 0;
  /// End of the highest byte ever taken from the arena, rounding and cached segments included.
  virtual Bytes high_water() const = 0;
};

struct AllocatorEntry {
  std::string_view name;
  std::string_view summary;  // one line
  bool offline = false;  // true: offsets are planned from all lifetimes (memory/static_offsets.h)
  std::unique_ptr<Allocator> (*make)(Bytes capacity) = nullptr;  // null if offline
  bool elastic = false;   // true: offsets depend on the capacity, so that what needs P bytes in an
                          // endless arena may work in fewer
  bool coalesces = true;  // false: what was cut once stays cut
  bool caches = false;    // keeps what was freed for itself: memory/reserved.h says how much
  bool memoryless = false;  // true: offsets depend only on what is resident
};

/// The explicit table: first_fit, first_fit_no_coalesce, best_fit, oldest_freed_first,
/// pytorch_caching, static_offsets.
std::span<const AllocatorEntry> allocators();
const AllocatorEntry* find_allocator(std::string_view name);

}  // namespace superneurons
