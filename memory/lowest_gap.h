// Lifetimes that have offsets already, and the lowest gap between them for one more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "memory/static_offsets.h"

namespace superneurons {

/// A list sorted by offset in chunks, so that insertion is cheap and chunks that live at other
/// times are skipped whole.
class LowestGap {
 public:
  /// Gives `lifetime` the lowest offset at which it overlaps none that is alive with it. Takes one
  /// from `work` for every lifetime that it looks at.
  Bytes place(const Lifetime& lifetime, std::int64_t& work) {
    const Bytes offset = find(lifetime, work);
    insert({offset, offset + lifetime.size, lifetime.from, lifetime.to});
    return offset;
  }

 private:
  struct Placed {
    Bytes offset{};
    Bytes end{};
    std::uint32_t from = 0;
    std::uint32_t to = 0;
  };
  struct Chunk {
    std::vector<Placed> placed;
    std::uint32_t from = std::numeric_limits<std::uint32_t>::max();  // earliest
    std::uint32_t to = 0;                                            // latest
  };
  static constexpr std::size_t kChunk = 256;

  Bytes find(const Lifetime& lifetime, std::int64_t& work) const {
    Bytes top{};
    for (const Chunk& chunk : chunks_) {
      --work;
      if (chunk.to <= lifetime.from || chunk.from >= lifetime.to) continue;
      work -= static_cast<std::int64_t>(chunk.placed.size());
      for (const Placed& placed : chunk.placed) {
        // Without short cuts: whether two lifetimes meet is hard to predict, the return is easy.
        const bool together = (placed.to > lifetime.from) & (placed.from < lifetime.to);
        if (together & (placed.offset - top >= lifetime.size)) return top;
        top = (together & (placed.end > top)) ? placed.end : top;
      }
    }
    return top;
  }

  void insert(const Placed& placed) {
    const auto before = [](Bytes offset, const Chunk& chunk) {
      return offset < chunk.placed.front().offset;
    };
    auto chunk = std::upper_bound(chunks_.begin(), chunks_.end(), placed.offset, before);
    if (chunk != chunks_.begin()) --chunk;
    if (chunk == chunks_.end()) chunk = chunks_.emplace(chunk);
    auto& list = chunk->placed;
    const auto at =
        std::upper_bound(list.begin(), list.end(), placed.offset,
                         [](Bytes offset, const Placed& other) { return offset < other.offset; });
    list.insert(at, placed);
    widen(*chunk, placed);
    if (list.size() >= 2 * kChunk) halve(chunk);
  }

  void halve(std::vector<Chunk>::iterator chunk) {
    Chunk upper;
    upper.placed.assign(chunk->placed.begin() + kChunk, chunk->placed.end());
    chunk->placed.resize(kChunk);
    for (const Placed& placed : upper.placed) widen(upper, placed);
    Chunk lower;
    for (const Placed& placed : chunk->placed) widen(lower, placed);
    chunk->from = lower.from;
    chunk->to = lower.to;
    chunks_.insert(std::next(chunk), std::move(upper));
  }

  static void widen(Chunk& chunk, const Placed& placed) {
    chunk.from = std::min(chunk.from, placed.from);
    chunk.to = std::max(chunk.to, placed.to);
  }

  std::vector<Chunk> chunks_;
};

}  // namespace superneurons
