// The caching allocator of PyTorch (c10/cuda/CUDACachingAllocator.cpp, constants of
// c10/core/AllocatorConfig.h, torch 2.11, default settings), over offsets: inside one arena, so
// that a plan can be placed as a PyTorch program's storages would be, or by itself, to predict what
// such a program reserves (memory/reserved.h).
#pragma once

#include <map>
#include <set>
#include <utility>

#include "memory/heap.h"

namespace superneurons {

/// Sizes are rounded up to 512 B. Requests of at most 1 MiB are cut from segments of 2 MiB, larger
/// ones from segments of 20 MiB, those of 10 MiB or more get their own, rounded up to 2 MiB.
/// Segments come from the arena by first fit where the program would call cudaMalloc. A request
/// takes the smallest free block of its pool that is large enough, of equals the lowest, and leaves
/// what remains (at least 512 B of a small, more than 1 MiB of a large one). A freed block
/// coalesces within its segment; the segment stays cached until there is no room for another, then
/// all that are wholly free go back and the request is tried once more. So offsets depend on the
/// capacity.
///
/// Not modelled, as they are off by default or leave no mark in a trace: several streams (each has
/// pools of its own; all requests are of one here), expandable segments, max_split_size and
/// roundup_power2_divisions, garbage collection, private pools of CUDA graphs, empty_cache().
class PyTorchCaching final : public Allocator {
 public:
  /// `limit`: bytes of all segments together, as set_per_process_memory_fraction has it.
  explicit PyTorchCaching(Bytes capacity, Bytes limit = kEndless)
      : arena_(capacity, HoleOrder::lowest), limit_(limit) {}

  std::optional<Bytes> allocate(Bytes size) override;
  /// The range is no segment: it goes back to the arena when freed.
  bool reserve(Bytes offset, Bytes size) override;
  void free(Bytes offset) override;
  /// Largest request that would be granted, wholly free segments having been given back.
  Bytes largest_hole() const override;
  Bytes rounded(Bytes size) const override { return round_up(size, 512_B); }
  Bytes high_water() const override { return arena_.high_water(); }

  /// Segments held, and the most so far: torch.cuda.memory_reserved(), max_memory_reserved().
  Bytes reserved() const { return reserved_; }
  Bytes reserved_peak() const { return reserved_peak_; }
  /// The most in blocks in use, what was not split off included: max_memory_allocated().
  Bytes allocated_peak() const { return allocated_peak_; }

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

  /// Adds a segment for `size` bytes as one free block. False if there is no room.
  bool add_segment(Bytes size, Pool pool);
  void release_free_segments();
  Blocks::iterator absorb_next(Blocks::iterator at);

  Heap arena_;
  Bytes limit_;
  Bytes reserved_{}, reserved_peak_{}, allocated_{}, allocated_peak_{};
  Blocks blocks_;
  std::set<std::pair<Bytes, Bytes>> free_[2];  // by pool: size, offset
};

}  // namespace superneurons
