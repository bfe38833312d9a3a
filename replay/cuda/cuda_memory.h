// Memory of the CUDA backend: the arena, the pinned pool, and two words outside of both.
#pragma once

#include <array>
#include <vector>

#include "memory/placement.h"
#include "replay/cuda/check.h"
#include "replay/feed.h"

namespace superneurons {

/// Device memory that no process uses.
Result<Bytes> free_device_memory();

class CudaMemory {
 public:
  /// One cudaMalloc of exactly `arena` bytes and one pinned piece of `pool` bytes (pinning costs
  /// about half a second per GiB, so it happens once). Error device without a GPU, does_not_fit
  /// without enough memory, saying how much is free.
  static Result<CudaMemory> take(Bytes arena, Bytes pool);

  Bytes arena_bytes() const { return arena_bytes_; }
  Bytes pool_bytes() const { return pool_bytes_; }
  std::byte* arena() const { return arena_.get(); }
  std::byte* at(Space space, Range range) const {
    return (space == Space::device ? arena_.get() : pool_.get()) + range.offset.count;
  }
  /// Error bad_usage for a range outside of the memory.
  Status check(Space space, Range range) const;
  /// Growth of the device memory in use, of all processes, since just before the arena was taken,
  /// without the arena: what our modules and libraries took, if others kept still. Context and
  /// other processes were there before and cannot be told apart.
  Result<Bytes> outside() const;

  // Each of these waits for its own work on `stream` and refuses ranges outside of the memory.
  Status initialise(const Trace& trace, TensorId tensor, std::uint64_t seed, Space space,
                    Range range, cudaStream_t stream);
  Result<std::uint64_t> checksum(Space space, Range range, cudaStream_t stream);
  Status read(Space space, Range range, std::byte* to);

  /// Where launch_guard_check() leaves the first code.
  unsigned long long* guard_slot() const { return slots() + 1; }
  Result<std::uint64_t> first_broken_guard() const;

 private:
  CudaMemory() = default;
  unsigned long long* slots() const { return reinterpret_cast<unsigned long long*>(slots_.get()); }

  Bytes arena_bytes_{}, pool_bytes_{}, in_use_before_{};
  DeviceMemory arena_;
  PinnedMemory pool_;
  DeviceMemory slots_;  // checksum; first broken guard
};

/// Pinned memory from which batches are copied to the device while the host makes the next one.
class Staging {
 public:
  struct Slot {
    std::byte* at = nullptr;
    cudaEvent_t copied = nullptr;  // to be recorded behind the copies out of it
  };
  /// A slot for the contents of `inputs`, the two in turns; waits until what was in it is copied.
  Result<Slot> next(const std::vector<Fed>& inputs);

 private:
  struct Piece {
    PinnedMemory memory;
    std::size_t bytes = 0;
    EventOwner copied;
  };
  std::array<Piece, 2> pieces_;
  std::size_t turn_ = 0;
};

}  // namespace superneurons
