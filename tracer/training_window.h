// Which part of a program's run is one training step: a repeated pattern of kernels, where nobody
// says it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace superneurons {

/// tokens[first, first + length) repeat themselves every `period`.
struct Pattern {
  std::size_t first = 0;
  std::size_t length = 0;
  std::size_t period = 0;

  std::size_t repetitions() const { return length / period; }
};

/// The pattern that covers the longest stretch, if it repeats at least three times there and holds
/// in at least half of all tokens; of those within a fifth of it the shortest. So a layer within a
/// training step is not taken for one: its stretch ends with the training step.
///
///     a b | x y y y z | x y y y z | x y y y z | c      y repeats three times, x y y y z too,
///           ^ first 2, period 5, length 15             over a stretch that is five times as long
///
/// Candidates are distances between equal runs of 1, 4, 16 ... tokens: if p is the smallest period
/// of a stretch, then a run as long as p occurs once in p. Linear in the tokens for each length.
std::optional<Pattern> find_pattern(std::span<const std::uint32_t> tokens);

}  // namespace superneurons
