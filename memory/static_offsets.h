// Offsets planned offline, from all lifetimes at once: dynamic storage allocation, which is
// NP-hard, by a few greedy orders.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/allocator.h"

namespace superneurons {

/// A range of `size` (> 0) bytes that is needed during [from, to), from < to.
struct Lifetime {
  Bytes size{};
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

/// Offset of each lifetime such that none that are alive together overlap. Sizes are taken as they
/// are (round them first).
///
/// Keeps the lowest peak of: first fit and best fit in order of time; then largest first (TFLite's
/// greedy by size; Pisarchyk and Lee, arXiv:2001.03288, section 5), largest size x duration first,
/// longest first, and busiest moment first (their greedy by breadth), each into the lowest gap that
/// is free for the whole lifetime. Stops when a peak equals the most bytes alive at one time, which
/// no packing beats, or when a fixed amount of work is done.
///
/// Worked example: a is 1 byte during [0, 1), b 1 byte during [0, 3), c 2 bytes during [1, 3).
///
///     in order of time     largest first
///       3 | . c c
///       2 | . c c            2 | b b b
///       1 | b b b            1 | . c c
///       0 | a . .            0 | a c c
///         +------> time        +------> time
std::vector<Bytes> plan_offsets(std::span<const Lifetime> lifetimes);

/// An allocator whose k-th allocate returns offsets[k], or nothing if that is not free or ends
/// beyond the capacity.
std::unique_ptr<Allocator> make_planned(Bytes capacity, std::vector<Bytes> offsets);

}  // namespace superneurons
