#include "memory/heap.h"

#include <algorithm>

namespace superneurons {

Heap::Heap(Bytes capacity, HoleOrder order, Bytes unit, Coalesce coalesce)
    : capacity_{std::max<std::int64_t>(capacity.count, 0) / unit.count * unit.count},
      order_(order),
      unit_(unit),
      coalesce_(coalesce) {
  if (capacity_ > 0_B) add_hole(0_B, {capacity_, 0});
}

HoleKey Heap::key(Bytes offset, const Hole& hole) const {
  switch (order_) {
    case HoleOrder::lowest:
      break;
    case HoleOrder::smallest:
      return {hole.size.count, offset};
    case HoleOrder::oldest:
      return {hole.freed, offset};
  }
  return {0, offset};
}

void Heap::add_hole(Bytes offset, Hole hole) {
  holes_.emplace(offset, hole);
  if (!is_top(offset, hole)) index_.insert(key(offset, hole), hole.size);
}

void Heap::remove_hole(Holes::iterator at) {
  if (!is_top(at->first, at->second)) index_.erase(key(at->first, at->second));
  holes_.erase(at);
}

void Heap::take(Holes::iterator at, Bytes offset, Bytes size) {
  const Bytes start = at->first;
  const Hole hole = at->second;
  remove_hole(at);
  if (start < offset) add_hole(start, {offset - start, hole.freed});
  const Bytes end = start + hole.size;
  if (offset + size < end) add_hole(offset + size, {end - offset - size, hole.freed});
  taken_.emplace(offset.count, size);
  high_water_ = std::max(high_water_, offset + size);
}

std::optional<Bytes> Heap::allocate(Bytes size) {
  if (size <= 0_B || size > capacity_) return std::nullopt;
  size = rounded(size);
  std::optional<Bytes> offset = index_.first_with(size);
  if (!offset) {
    if (holes_.empty()) return std::nullopt;
    const auto& [start, hole] = *holes_.rbegin();
    if (!is_top(start, hole) || hole.size < size) return std::nullopt;
    offset = start;
  }
  take(holes_.find(*offset), *offset, size);
  return offset;
}

bool Heap::reserve(Bytes offset, Bytes size) {
  if (size <= 0_B || size > capacity_ || offset < 0_B || offset > capacity_) return false;
  if (offset.count % unit_.count != 0) return false;
  size = rounded(size);
  auto at = holes_.upper_bound(offset);
  if (at == holes_.begin()) return false;
  --at;
  if (offset + size > at->first + at->second.size) return false;
  take(at, offset, size);
  return true;
}

void Heap::free(Bytes offset) {
  const auto found = taken_.find(offset.count);
  if (found == taken_.end()) return;
  Hole hole{found->second, ++frees_};
  taken_.erase(found);
  if (coalesce_ == Coalesce::no) return add_hole(offset, hole);
  auto after = holes_.lower_bound(offset);
  if (after != holes_.end() && after->first == offset + hole.size) {
    hole.size += after->second.size;
    const auto next = std::next(after);
    remove_hole(after);
    after = next;
  }
  if (after != holes_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second.size == offset) {
      offset = before->first;
      hole.size += before->second.size;
      remove_hole(before);
    }
  }
  add_hole(offset, hole);
}

Bytes Heap::largest_hole() const {
  if (holes_.empty()) return {};
  const auto& [start, hole] = *holes_.rbegin();
  return is_top(start, hole) ? std::max(index_.largest(), hole.size) : index_.largest();
}

}  // namespace superneurons
