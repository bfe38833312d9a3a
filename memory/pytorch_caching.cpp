#include "memory/pytorch_caching.h"

#include <algorithm>

namespace superneurons {
namespace {

// Their names in the source, and what they mean.
constexpr Bytes kSmallRequest = 1_MiB;   // kSmallSize: the largest that goes to the small pool
constexpr Bytes kSmallSegment = 2_MiB;   // kSmallBuffer
constexpr Bytes kLargeRequest = 10_MiB;  // kMinLargeAlloc: the smallest with its own segment
constexpr Bytes kLargeSegment = 20_MiB;  // large_segment_size_mb
constexpr Bytes kSegmentUnit = 2_MiB;    // kRoundLarge
constexpr Bytes kSmallRest = 512_B;      // kMinBlockSize: the least that a small split leaves

Bytes segment_size(Bytes size) {
  if (size <= kSmallRequest) return kSmallSegment;
  return size < kLargeRequest ? kLargeSegment : round_up(size, kSegmentUnit);
}

}  // namespace

bool PyTorchCaching::add_segment(Bytes size, Pool pool) {
  const Bytes bytes = segment_size(size);
  if (bytes > limit_ - reserved_) return false;
  const std::optional<Bytes> offset = arena_.allocate(bytes);
  if (!offset) return false;
  reserved_ += bytes;
  reserved_peak_ = std::max(reserved_peak_, reserved_);
  blocks_.emplace(*offset, Block{bytes, pool, true, true, true});
  free_[pool].insert({bytes, *offset});
  return true;
}

void PyTorchCaching::release_free_segments() {
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    const auto& [offset, block] = *at;
    if (!block.free || !block.first || !block.last) {
      ++at;
      continue;
    }
    free_[block.pool].erase({block.size, offset});
    arena_.free(offset);
    reserved_ -= block.size;
    at = blocks_.erase(at);
  }
}

std::optional<Bytes> PyTorchCaching::allocate(Bytes size) {
  if (size <= 0_B || size > kEndless) return std::nullopt;
  size = rounded(size);
  const Pool pool = size <= kSmallRequest ? small : large;
  auto found = free_[pool].lower_bound({size, 0_B});
  if (found == free_[pool].end()) {
    if (!add_segment(size, pool)) {
      release_free_segments();
      if (!add_segment(size, pool)) return std::nullopt;
    }
    found = free_[pool].lower_bound({size, 0_B});
  }
  const Bytes offset = found->second;
  free_[pool].erase(found);
  Block& block = blocks_.at(offset);
  block.free = false;
  const Bytes rest = block.size - size;
  if (pool == small ? rest >= kSmallRest : rest > kSmallRequest) {
    blocks_.emplace(offset + size, Block{rest, pool, true, false, block.last});
    free_[pool].insert({rest, offset + size});
    block.size = size;
    block.last = false;
  }
  allocated_ += block.size;
  allocated_peak_ = std::max(allocated_peak_, allocated_);
  return offset;
}

bool PyTorchCaching::reserve(Bytes offset, Bytes size) {
  if (arena_.reserve(offset, size)) return true;
  release_free_segments();
  return arena_.reserve(offset, size);
}

PyTorchCaching::Blocks::iterator PyTorchCaching::absorb_next(Blocks::iterator at) {
  const auto next = std::next(at);
  free_[next->second.pool].erase({next->second.size, next->first});
  at->second.size += next->second.size;
  at->second.last = next->second.last;
  blocks_.erase(next);
  return at;
}

void PyTorchCaching::free(Bytes offset) {
  auto at = blocks_.find(offset);
  if (at == blocks_.end()) return arena_.free(offset);  // reserved, or not ours
  if (at->second.free) return;
  at->second.free = true;
  allocated_ -= at->second.size;
  if (!at->second.last && std::next(at)->second.free) at = absorb_next(at);
  if (!at->second.first && std::prev(at)->second.free) {
    const auto before = std::prev(at);
    free_[before->second.pool].erase({before->second.size, before->first});
    free_[at->second.pool].insert({at->second.size, at->first});
    at = absorb_next(before);
  }
  free_[at->second.pool].insert({at->second.size, at->first});
}

Bytes PyTorchCaching::largest_hole() const {
  Bytes largest{};
  if (!free_[small].empty()) largest = std::min(free_[small].rbegin()->first, kSmallRequest);
  if (!free_[large].empty()) largest = std::max(largest, free_[large].rbegin()->first);
  PyTorchCaching released = *this;
  released.release_free_segments();
  const std::int64_t units = released.arena_.largest_hole().count / kSegmentUnit.count;
  const std::int64_t allowed = (limit_ - released.reserved_).count / kSegmentUnit.count;
  const Bytes room = kSegmentUnit * std::min(units, allowed);
  if (room >= kLargeRequest) return std::max(largest, room);
  return room >= kSmallSegment ? std::max(largest, kSmallRequest) : largest;
}

}  // namespace superneurons
