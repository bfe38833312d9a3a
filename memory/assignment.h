// Assignment: offsets for the requests of a schedule, by any allocator of the registry.
#pragma once

#include <optional>
#include <vector>

#include "memory/allocator.h"
#include "memory/schedule.h"

namespace superneurons {

struct Misfit {
  std::uint32_t request = 0;
  Bytes wanted{};  // rounded, guards included
  Bytes largest_hole{};
};

struct Assignment {
  std::vector<Range> ranges;  // of each request
  Bytes device_peak{};
  std::uint32_t device_peak_step = 0;
  Bytes host_peak{};
  std::optional<Bytes> planned_peak;  // offline only: the arena that the planned offsets need
  std::optional<Misfit> misfit;  // first request that got no range; the rest is not filled then
};

/// `guard` bytes before (rounded up, for alignment) and after every device range. `holes`, if not
/// null, becomes the largest device hole when each step asks for workspace (Schedule::ready).
Assignment assign(const Schedule& schedule, const AllocatorEntry& entry, Bytes arena, Bytes host,
                  Bytes guard, std::vector<Bytes>* holes = nullptr);

}  // namespace superneurons
