// The heap behind first_fit, best_fit and oldest_freed_first: they differ only in the order in
// which they look at holes. Neighbouring holes coalesce at once, but in first_fit_no_coalesce: the
// pool as the paper describes it (PPoPP 2018, section 3.3.2), which cuts nodes and never joins
// them.
//
// First fit, in units of 1 KiB, capacity 10:
//     allocate 3, 2, 4     aaabbcccc.
//     free b               aaa..cccc.
//     allocate 1           aaad.cccc.     the lowest hole that is large enough
//     allocate 2           nothing        two free units, but not in one piece
//     free c               aaad......     coalesced with the hole on either side
//     allocate 6           aaadeeeeee
#pragma once

#include <cstdint>
#include <vector>

#include "memory/allocator.h"
#include "memory/hole_index.h"
#include "memory/offset_table.h"

namespace superneurons {

/// Whether a freed range joins the holes beside it.
enum class Coalesce : std::uint8_t { yes, no };

/// What a heap takes first among the holes that are large enough.
enum class HoleOrder : std::uint8_t { lowest, smallest, oldest };

/// The hole that ends at the capacity, the top, is taken only when no other hole is large enough,
/// whatever the order. So offsets do not depend on the capacity, and a sequence of calls that needs
/// P bytes in an endless arena works in one of P bytes and in none that is smaller.
class Heap final : public Allocator {
 public:
  /// `unit`: what sizes are rounded up to, and the capacity down to.
  Heap(Bytes capacity, HoleOrder order, Bytes unit = kAllocationUnit,
       Coalesce coalesce = Coalesce::yes);

  std::optional<Bytes> allocate(Bytes size) override;
  /// Linear in the number of blocks.
  bool reserve(Bytes offset, Bytes size) override;
  void free(Bytes offset) override;
  Bytes largest_hole() const override;
  Bytes rounded(Bytes size) const override { return round_up(size, unit_); }
  Bytes high_water() const override { return high_water_; }

 private:
  using Link = std::int32_t;
  static constexpr Link kNone = -1;
  /// Free and taken blocks cover the arena, in a list by offset.
  struct Block {
    Bytes offset{};
    Bytes size{};
    std::int64_t freed = 0;  // of a hole: number of the free that made it; 0: never used
    Link before = kNone;
    Link after = kNone;
    bool free = true;
  };

  HoleKey key(const Block& hole) const;
  /// The hole that ends at the capacity, which the index does not have. Where holes do not join, a
  /// freed one at the end is no top: in a larger arena it would be a hole like others.
  bool is_top(const Block& hole) const {
    return hole.after == kNone && (coalesce_ == Coalesce::yes || hole.freed == 0);
  }
  Link make(const Block& block);
  void remove(Link block);
  /// A block was, or is to be, a hole of the index.
  void add_hole(Link hole);
  void forget_hole(Link hole);
  /// A hole of the index gets other bounds, between the same neighbours.
  void change_hole(Link hole, Bytes offset, Bytes size, std::int64_t freed);
  /// Cuts [offset, offset + size) out of the hole that holds it.
  void take(Link hole, Bytes offset, Bytes size);

  Bytes capacity_;
  HoleOrder order_;
  Bytes unit_;
  Coalesce coalesce_;
  Bytes high_water_{};
  std::int64_t frees_ = 0;
  std::vector<Block> blocks_;
  std::vector<Link> unused_;
  Link last_ = kNone;
  OffsetTable at_;   // every block by its offset
  HoleIndex index_;  // of all holes but the top
};

}  // namespace superneurons
