// An allocator like that of PyTorch (c10/cuda/CUDACachingAllocator.cpp, as documented in public),
// inside one arena, so that a plan can be placed as a PyTorch program's storages would be.
#pragma once

#include <map>
#include <set>
#include <utility>

#include "memory/heap.h"

namespace superneurons {

/// Sizes are rounded up to 512 B. Requests of at most 1 MiB are cut from segments of 2 MiB, larger
/// ones from segments of 20 MiB, those of 10 MiB or more get their own, rounded up to 2 MiB.
/// Segments come from the arena by first fit where the program would call cudaMalloc. A request
/// takes the smallest free block of its pool that is large enough and leaves what remains (at least
/// 512 B of a small, more than 1 MiB of a large one). A freed block coalesces within its segment;
/// the segment stays cached until the arena has no room for another, then all that are wholly free
/// go back. So offsets depend on the capacity.
class Caching final : public Allocator {
 public:
  explicit Caching(Bytes capacity) : arena_(capacity, HoleOrder::lowest) {}

  std::optional<Bytes> allocate(Bytes size) override;
  /// The range is no segment: it goes back to the arena when freed.
  bool reserve(Bytes offset, Bytes size) override;
  void free(Bytes offset) override;
  /// Largest request that would be granted, wholly free segments having been given back.
  Bytes largest_hole() const override;
  Bytes rounded(Bytes size) const override { return round_up(size, 512_B); }
  Bytes high_water() const override { return arena_.high_water(); }

 private:
  enum Pool : std::uint8_t { small, large };
  struct Block {
    Bytes size{};
    Pool pool = small;
    bool free = true;
    bool first = false;  // of its segment
    bool last = false;
  };
  using Blocks = std::map<Bytes, Block>;

  /// Adds a segment for `size` bytes as one free block. False if the arena has no room.
  bool add_segment(Bytes size, Pool pool);
  void release_free_segments();
  Blocks::iterator absorb_next(Blocks::iterator at);

  Heap arena_;
  Blocks blocks_;
  std::set<std::pair<Bytes, Bytes>> free_[2];  // by pool: size, offset
};

}  // namespace superneurons
