#include "memory/heap.h"

#include <algorithm>

namespace superneurons {

Heap::Heap(Bytes capacity, HoleOrder order, Bytes unit, Coalesce coalesce)
    : capacity_{std::max<std::int64_t>(capacity.count, 0) / unit.count * unit.count},
      order_(order),
      unit_(unit),
      coalesce_(coalesce) {
  if (capacity_ > 0_B) last_ = make({0_B, capacity_, 0, kNone, kNone, true});
}

HoleKey Heap::key(const Block& hole) const {
  switch (order_) {
    case HoleOrder::lowest:
      break;
    case HoleOrder::smallest:
      return {hole.size.count, hole.offset};
    case HoleOrder::oldest:
      return {hole.freed, hole.offset};
  }
  return {0, hole.offset};
}

Heap::Link Heap::make(const Block& block) {
  Link link = static_cast<Link>(blocks_.size());
  if (unused_.empty()) {
    blocks_.push_back(block);
  } else {
    link = unused_.back();
    unused_.pop_back();
    blocks_[link] = block;
  }
  if (block.before != kNone) blocks_[block.before].after = link;
  if (block.after != kNone) blocks_[block.after].before = link;
  else last_ = link;
  at_.insert(block.offset, link);
  return link;
}

void Heap::remove(Link block) {
  const Block& gone = blocks_[block];
  if (gone.before != kNone) blocks_[gone.before].after = gone.after;
  if (gone.after != kNone) blocks_[gone.after].before = gone.before;
  else last_ = gone.before;
  at_.erase(gone.offset);
  unused_.push_back(block);
}

void Heap::add_hole(Link hole) {
  if (!is_top(blocks_[hole])) index_.insert(key(blocks_[hole]), blocks_[hole].size);
}

void Heap::forget_hole(Link hole) {
  if (!is_top(blocks_[hole])) index_.erase(key(blocks_[hole]));
}

void Heap::change_hole(Link hole, Bytes offset, Bytes size, std::int64_t freed) {
  Block& block = blocks_[hole];
  const HoleKey from = key(block);
  if (offset != block.offset) {
    at_.erase(block.offset);
    at_.insert(offset, hole);
  }
  block.offset = offset;
  block.size = size;
  block.freed = freed;
  if (is_top(block)) return;
  if (order_ == HoleOrder::lowest) return index_.change(from, key(block), size);
  index_.erase(from);
  index_.insert(key(block), size);
}

void Heap::take(Link hole, Bytes offset, Bytes size) {
  const Block whole = blocks_[hole];
  const Bytes end = whole.offset + whole.size;
  high_water_ = std::max(high_water_, offset + size);
  if (offset == whole.offset && size == whole.size) {
    forget_hole(hole);
    blocks_[hole].free = false;
    return;
  }
  if (offset > whole.offset && offset + size < end) {  // what is behind stays the same kind of hole
    change_hole(hole, offset + size, end - offset - size, whole.freed);
    const Link rest = make({whole.offset, offset - whole.offset, whole.freed, whole.before, hole});
    make({offset, size, 0, rest, hole, false});
    return add_hole(rest);
  }
  if (offset == whole.offset) {
    change_hole(hole, offset + size, end - offset - size, whole.freed);
    make({offset, size, 0, whole.before, hole, false});
    return;
  }
  if (is_top(whole)) {  // the hole is no longer the top
    blocks_[hole].size = offset - whole.offset;
    make({offset, size, 0, hole, kNone, false});
    return add_hole(hole);
  }
  change_hole(hole, whole.offset, offset - whole.offset, whole.freed);
  make({offset, size, 0, hole, whole.after, false});
}

std::optional<Bytes> Heap::allocate(Bytes size) {
  if (size <= 0_B || size > capacity_) return std::nullopt;
  size = rounded(size);
  Link hole = last_;
  if (const std::optional<Bytes> offset = index_.first_with(size)) {
    hole = *at_.find(*offset);
  } else if (hole == kNone || !blocks_[hole].free || !is_top(blocks_[hole]) ||
             blocks_[hole].size < size) {
    return std::nullopt;
  }
  const Bytes offset = blocks_[hole].offset;
  take(hole, offset, size);
  return offset;
}

bool Heap::reserve(Bytes offset, Bytes size) {
  if (size <= 0_B || size > capacity_ || offset < 0_B || offset > capacity_) return false;
  if (offset.count % unit_.count != 0) return false;
  size = rounded(size);
  Link at = last_;
  while (at != kNone && blocks_[at].offset > offset) at = blocks_[at].before;
  if (at == kNone || !blocks_[at].free) return false;
  if (offset + size > blocks_[at].offset + blocks_[at].size) return false;
  take(at, offset, size);
  return true;
}

void Heap::free(Bytes offset) {
  const std::optional<Link> found = at_.find(offset);
  if (!found || blocks_[*found].free) return;
  const Link block = *found;
  const Link before = blocks_[block].before, after = blocks_[block].after;
  const bool joins = coalesce_ == Coalesce::yes;
  const bool joins_before = joins && before != kNone && blocks_[before].free;
  const bool joins_after = joins && after != kNone && blocks_[after].free;
  Bytes size = blocks_[block].size;
  if (joins_after) size += blocks_[after].size;
  const std::int64_t freed = ++frees_;
  if (joins_before) {  // that hole grows
    const bool top = after == kNone || (joins_after && is_top(blocks_[after]));
    if (joins_after) forget_hole(after);
    if (top) forget_hole(before);
    remove(block);
    if (joins_after) remove(after);
    change_hole(before, blocks_[before].offset, blocks_[before].size + size, freed);
  } else if (joins_after) {
    remove(block);
    change_hole(after, offset, size, freed);
  } else {
    blocks_[block].free = true;
    blocks_[block].freed = freed;
    add_hole(block);
  }
}

Bytes Heap::largest_hole() const {
  if (last_ == kNone || !blocks_[last_].free) return index_.largest();
  return std::max(index_.largest(), blocks_[last_].size);
}

}  // namespace superneurons
