#include "memory/assignment.h"

#include <algorithm>

#include "memory/heap.h"
#include "memory/static_offsets.h"

namespace superneurons {
namespace {

/// A device range with its guards: what the allocator sees.
struct Padding {
  Bytes before{};
  Bytes after{};
  Bytes around(Bytes bytes) const { return before + bytes + after; }
};

/// Offsets of all device requests in the order in which they are taken, and their peak. Homes,
/// which live throughout, go to the bottom: a packing of the rest is as good there as anywhere.
std::vector<Bytes> plan_all(const Schedule& schedule, const Padding& padding,
                            std::optional<Bytes>& peak) {
  std::vector<Bytes> offsets;
  std::vector<Lifetime> lifetimes;
  std::vector<std::uint32_t> lifetime_of(schedule.requests.size());
  Bytes bottom{};
  const auto end = static_cast<std::uint32_t>(schedule.events.size());
  for (std::uint32_t time = 0; time < end; ++time) {
    const ScheduleEvent& event = schedule.events[time];
    const Allocation& allocation = schedule.requests[event.request].allocation;
    if (allocation.space == Space::host) continue;
    const Bytes size = round_up(padding.around(allocation.range.bytes), kAllocationUnit);
    if (event.request < schedule.homes) {
      offsets.push_back(bottom);
      bottom += size;
    } else if (event.taken) {
      lifetime_of[event.request] = static_cast<std::uint32_t>(lifetimes.size());
      lifetimes.push_back({size, time, end});
    } else {
      lifetimes[lifetime_of[event.request]].to = time;
    }
  }
  peak = bottom;
  const std::vector<Bytes> above = plan_offsets(lifetimes);
  for (std::size_t i = 0; i < above.size(); ++i) {
    offsets.push_back(bottom + above[i]);
    peak = std::max(*peak, offsets.back() + lifetimes[i].size);
  }
  return offsets;
}

}  // namespace

Assignment assign(const Schedule& schedule, const AllocatorEntry& entry, Bytes arena, Bytes host,
                  Bytes guard, std::vector<Bytes>* holes) {
  const Padding padding{round_up(guard, kAllocationUnit), guard};
  Assignment result;
  result.ranges.resize(schedule.requests.size());
  const std::unique_ptr<Allocator> device =
      entry.offline ? make_planned(arena, plan_all(schedule, padding, result.planned_peak))
                    : entry.make(arena);
  Heap pool(host, HoleOrder::lowest);
  const auto note_holes = [&](std::size_t events) {
    if (holes == nullptr || holes->size() == schedule.ready.size() ||
        schedule.ready[holes->size()] > events)
      return;
    const Bytes hole = device->largest_hole();
    while (holes->size() < schedule.ready.size() && schedule.ready[holes->size()] <= events)
      holes->push_back(hole);
  };
  for (std::size_t i = 0; i < schedule.events.size(); ++i) {
    note_holes(i);
    const ScheduleEvent& event = schedule.events[i];
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
  note_holes(schedule.events.size());
  result.host_peak = pool.high_water();
  return result;
}

}  // namespace superneurons
