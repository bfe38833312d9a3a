// A hash table from offsets to block numbers, flat and without tombstones: allocators look blocks
// up by the hundred thousand.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/units.h"

namespace superneurons {

/// Open addressing with linear probing; erasing shifts back what follows (Knuth, TAOCP 3, 6.4,
/// algorithm R).
class OffsetTable {
 public:
  void insert(Bytes offset, std::int32_t block) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    std::size_t at = home(offset.count);
    while (slots_[at].block >= 0) at = next(at);
    slots_[at] = {offset.count, block};
    ++size_;
  }

  std::optional<std::int32_t> find(Bytes offset) const {
    if (slots_.empty()) return std::nullopt;
    for (std::size_t at = home(offset.count); slots_[at].block >= 0; at = next(at))
      if (slots_[at].offset == offset.count) return slots_[at].block;
    return std::nullopt;
  }

  void erase(Bytes offset) {
    if (slots_.empty()) return;
    std::size_t hole = home(offset.count);
    while (slots_[hole].offset != offset.count) {
      if (slots_[hole].block < 0) return;
      hole = next(hole);
    }
    if (slots_[hole].block < 0) return;
    --size_;
    for (std::size_t at = next(hole); slots_[at].block >= 0; at = next(at)) {
      // What stands between its home and the hole may not move before its home.
      const std::size_t from = home(slots_[at].offset);
      if (((at - from) & (slots_.size() - 1)) < ((at - hole) & (slots_.size() - 1))) continue;
      slots_[hole] = slots_[at];
      hole = at;
    }
    slots_[hole] = {};
  }

 private:
  struct Slot {
    std::int64_t offset = -1;
    std::int32_t block = -1;  // -1: empty
  };

  std::size_t home(std::int64_t offset) const {
    const auto mixed = static_cast<std::uint64_t>(offset) * 0x9e3779b97f4a7c15ULL;
    return static_cast<std::size_t>(mixed >> 32) & (slots_.size() - 1);
  }
  std::size_t next(std::size_t at) const { return (at + 1) & (slots_.size() - 1); }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
    old.swap(slots_);
    size_ = 0;
    for (const Slot& slot : old)
      if (slot.block >= 0) insert({slot.offset}, slot.block);
  }

  std::vector<Slot> slots_;  // a power of two
  std::size_t size_ = 0;
};

}  // namespace superneurons
