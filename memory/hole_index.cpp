#include "memory/hole_index.h"

#include <algorithm>

namespace superneurons {

HoleIndex::Link HoleIndex::make(HoleKey key, Bytes size) {
  // xorshift32 (Marsaglia 2003)
  random_ ^= random_ << 13;
  random_ ^= random_ >> 17;
  random_ ^= random_ << 5;
  const Node node{key, size, size, random_, kNone, kNone};
  if (unused_.empty()) {
    nodes_.push_back(node);
    return static_cast<Link>(nodes_.size() - 1);
  }
  const Link link = unused_.back();
  unused_.pop_back();
  nodes_[link] = node;
  return link;
}

void HoleIndex::update(Link link) {
  Node& node = nodes_[link];
  node.largest = node.size;
  if (node.left != kNone) node.largest = std::max(node.largest, nodes_[node.left].largest);
  if (node.right != kNone) node.largest = std::max(node.largest, nodes_[node.right].largest);
}

void HoleIndex::split(Link tree, HoleKey key, Link& below, Link& others) {
  if (tree == kNone) {
    below = others = kNone;
    return;
  }
  if (nodes_[tree].key < key) {
    below = tree;
    split(nodes_[tree].right, key, nodes_[tree].right, others);
  } else {
    others = tree;
    split(nodes_[tree].left, key, below, nodes_[tree].left);
  }
  update(tree);
}

HoleIndex::Link HoleIndex::merge(Link below, Link above) {
  if (below == kNone) return above;
  if (above == kNone) return below;
  if (nodes_[below].priority >= nodes_[above].priority) {
    nodes_[below].right = merge(nodes_[below].right, above);
    update(below);
    return below;
  }
  nodes_[above].left = merge(below, nodes_[above].left);
  update(above);
  return above;
}

void HoleIndex::insert(HoleKey key, Bytes size) {
  const Link node = make(key, size);
  Link below = kNone;
  Link others = kNone;
  split(root_, key, below, others);
  root_ = merge(merge(below, node), others);
}

void HoleIndex::erase(HoleKey key) {
  Link below = kNone;
  Link others = kNone;
  Link found = kNone;
  Link above = kNone;
  split(root_, key, below, others);
  split(others, {key.rank, key.offset + 1_B}, found, above);
  if (found != kNone) unused_.push_back(found);
  root_ = merge(below, above);
}

void HoleIndex::change(HoleKey from, HoleKey to, Bytes size) {
  path_.clear();
  for (Link link = root_; link != kNone;) {
    path_.push_back(link);
    const auto order = from <=> nodes_[link].key;
    if (order == 0) break;
    link = order < 0 ? nodes_[link].left : nodes_[link].right;
  }
  if (path_.empty() || nodes_[path_.back()].key != from) return;
  nodes_[path_.back()].key = to;
  nodes_[path_.back()].size = size;
  for (std::size_t i = path_.size(); i-- > 0;) update(path_[i]);
}

std::optional<Bytes> HoleIndex::first_with(Bytes size) const {
  if (root_ == kNone || nodes_[root_].largest < size) return std::nullopt;
  for (Link link = root_;;) {
    const Node& node = nodes_[link];
    if (node.left != kNone && nodes_[node.left].largest >= size) {
      link = node.left;
    } else if (node.size >= size) {
      return node.key.offset;
    } else {
      link = node.right;
    }
  }
}

}  // namespace superneurons
