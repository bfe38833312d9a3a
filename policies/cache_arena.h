// What a planner needs of an arena while it decides: the plan's allocator, or the sum of bytes
// where offsets are planned offline.
#pragma once

#include <memory>
#include <optional>

#include "memory/allocator.h"

namespace superneurons {

class CacheArena {
 public:
  CacheArena(const AllocatorEntry& entry, Bytes capacity) : capacity_(capacity) {
    if (!entry.offline) allocator_ = entry.make(capacity);
  }

  /// A range, or nothing. Where offsets come later, any number stands for them.
  std::optional<Bytes> allocate(Bytes size) {
    if (allocator_) return allocator_->allocate(size);
    const Bytes rounded = round_up(size, kAllocationUnit);
    if (rounded > capacity_ - used_) return std::nullopt;
    used_ += rounded;
    return 0_B;
  }
  void free(Bytes offset, Bytes size) {
    if (allocator_) allocator_->free(offset);
    else used_ -= round_up(size, kAllocationUnit);
  }

 private:
  std::unique_ptr<Allocator> allocator_;
  Bytes capacity_, used_{};
};

}  // namespace superneurons
