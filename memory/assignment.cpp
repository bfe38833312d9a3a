#include "memory/assignment.h"

#include <algorithm>

#include "memory/heap.h"

namespace superneurons {
namespace {

/// A device range with its guards: what the allocator sees.
struct Padding {
  Bytes before{};
  Bytes after{};
  Bytes around(Bytes bytes) const { return before + bytes + after; }
};

}  // namespace

Assignment assign(const Schedule& schedule, const AllocatorEntry& entry, Bytes arena, Bytes host,
                  Bytes guard) {
  const Padding padding{round_up(guard, kAllocationUnit), guard};
  Assignment result;
  result.ranges.resize(schedule.requests.size());
  const std::unique_ptr<Allocator> device = entry.make(arena);
  Heap pool(host, HoleOrder::lowest);
  for (const ScheduleEvent& event : schedule.events) {
    const Request& request = schedule.requests[event.request];
    const Bytes bytes = request.allocation.range.bytes;
    const bool on_device = request.allocation.space == Space::device;
    Allocator& allocator = on_device ? *device : pool;
    const Bytes before = on_device ? padding.before : 0_B;
    if (!event.taken) {
      allocator.free(result.ranges[event.request].offset - before);
      continue;
    }
    const Bytes size = on_device ? padding.around(bytes) : bytes;
    const std::optional<Bytes> offset = allocator.allocate(size);
    if (!offset) {
      result.misfit = Misfit{event.request, allocator.rounded(size), allocator.largest_hole()};
      return result;
    }
    result.ranges[event.request] = {*offset + before, bytes};
    if (on_device && device->high_water() > result.device_peak) {
      result.device_peak = device->high_water();
      result.device_peak_step = request.step;
    }
  }
  result.host_peak = pool.high_water();
  return result;
}

}  // namespace superneurons
