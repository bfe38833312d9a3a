#include "memory/allocator.h"

#include <algorithm>
#include <array>

#include "memory/heap.h"
#include "memory/pytorch_caching.h"

namespace superneurons {
namespace {

template <HoleOrder order>
std::unique_ptr<Allocator> make_heap(Bytes capacity) {
  return std::make_unique<Heap>(capacity, order);
}

std::unique_ptr<Allocator> make_uncoalesced(Bytes capacity) {
  return std::make_unique<Heap>(capacity, HoleOrder::lowest, kAllocationUnit, Coalesce::no);
}

std::unique_ptr<Allocator> make_pytorch_caching(Bytes capacity) {
  return std::make_unique<PyTorchCaching>(capacity);
}

constexpr std::array kAllocators = {
    AllocatorEntry{"first_fit", "lowest hole that is large enough, 1 KiB blocks (SuperNeurons)",
                   false, make_heap<HoleOrder::lowest>, false, true, false, true},
    AllocatorEntry{"first_fit_no_coalesce",
                   "the same as the paper prints it: freed neighbours never join", false,
                   make_uncoalesced, false, false},
    AllocatorEntry{"best_fit", "smallest hole that is large enough, 1 KiB blocks", false,
                   make_heap<HoleOrder::smallest>},
    AllocatorEntry{"oldest_freed_first",
                   "hole freed longest ago, so that ranges still being copied rest, 1 KiB blocks",
                   false, make_heap<HoleOrder::oldest>},
    AllocatorEntry{"pytorch_caching",
                   "PyTorch's: cached segments in a small and a large pool, best fit; reports say "
                   "what it reserves",
                   false, make_pytorch_caching, true, true, true},
    AllocatorEntry{"static_offsets", "planned offline from all lifetimes, several greedy orders",
                   true},
};

}  // namespace

std::span<const AllocatorEntry> allocators() { return kAllocators; }

const AllocatorEntry* find_allocator(std::string_view name) {
  const auto found = std::find_if(kAllocators.begin(), kAllocators.end(),
                                  [&](const AllocatorEntry& entry) { return entry.name == name; });
  return found == kAllocators.end() ? nullptr : &*found;
}

}  // namespace superneurons
