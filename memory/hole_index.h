// Free ranges in the order in which an allocator likes them, with a search for the first that is
// large enough in logarithmic time.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/units.h"

namespace superneurons {

/// Place of a hole in the order: by `rank`, then by `offset`. What the rank is decides the method:
/// constant gives first fit, the size gives best fit, the time of the free oldest-freed-first.
struct HoleKey {
  std::int64_t rank = 0;
  Bytes offset{};
  friend auto operator<=>(const HoleKey&, const HoleKey&) = default;
};

/// A treap that keeps the largest size below each node (Seidel and Aragon, Algorithmica 1996).
/// Priorities come from a fixed sequence, so that its shape depends on the calls alone.
class HoleIndex {
 public:
  void insert(HoleKey key, Bytes size);
  void erase(HoleKey key);
  /// The hole at `from` becomes one of `size` bytes at `to`, which must have the same neighbours in
  /// the order.
  void change(HoleKey from, HoleKey to, Bytes size);
  /// Offset of the first hole in key order that has `size` bytes or more.
  std::optional<Bytes> first_with(Bytes size) const;
  Bytes largest() const { return root_ == kNone ? Bytes{} : nodes_[root_].largest; }

 private:
  using Link = std::int32_t;
  static constexpr Link kNone = -1;
  struct Node {
    HoleKey key;
    Bytes size{};
    Bytes largest{};  // of this node and all below
    std::uint32_t priority = 0;
    Link left = kNone;
    Link right = kNone;
  };

  Link make(HoleKey key, Bytes size);
  void update(Link node);
  /// Cuts a tree into keys below `key` and the others.
  void split(Link tree, HoleKey key, Link& below, Link& others);
  Link merge(Link below, Link above);

  std::vector<Node> nodes_;
  std::vector<Link> unused_;
  std::vector<Link> path_;  // of change(), kept for its memory
  Link root_ = kNone;
  std::uint32_t random_ = 0x9e3779b9U;
};

}  // namespace superneurons
