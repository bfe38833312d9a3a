#include "tracer/training_window.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace superneurons {
namespace {

constexpr std::size_t kFewestRepetitions = 3;
constexpr std::size_t kGapsPerLength = 6;    // most frequent distances that are tried
constexpr std::size_t kMostGaps = 1U << 16;  // distances that are counted at a time
constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15ULL;

/// Distances from each run of `length` tokens to its previous occurrence, by how often.
class Gaps {
 public:
  void add(std::size_t gap) {
    if (gap != last_) flush();
    last_ = gap;
    ++run_;
  }
  std::vector<std::size_t> most_frequent() {
    flush();
    std::vector<std::pair<std::size_t, std::size_t>> all;  // count, gap
    for (const auto& [gap, count] : counts_) all.emplace_back(count, gap);
    const std::size_t most = std::min(all.size(), kGapsPerLength);
    std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(most), all.end(),
                      [](const auto& a, const auto& b) {
                        return a.first != b.first ? a.first > b.first : a.second < b.second;
                      });
    std::vector<std::size_t> gaps;
    for (std::size_t i = 0; i < most; ++i) gaps.push_back(all[i].second);
    return gaps;
  }

 private:
  void flush() {
    if (run_ > 0 && last_ > 0) counts_[last_] += run_;
    run_ = 0;
    if (counts_.size() <= kMostGaps) return;
    for (auto at = counts_.begin(); at != counts_.end();)
      at = at->second < 16 ? counts_.erase(at) : std::next(at);
    if (counts_.size() > kMostGaps / 2) counts_.clear();  // no order in this
  }
  std::map<std::size_t, std::size_t> counts_;
  std::size_t last_ = 0, run_ = 0;
};

std::vector<std::size_t> frequent_gaps(std::span<const std::uint32_t> tokens, std::size_t length) {
  // The place of the last run with a hash; a collision costs a candidate, no more.
  std::size_t bits = 10;
  while ((std::size_t{1} << bits) < 2 * tokens.size() && bits < 22) ++bits;
  std::vector<std::pair<std::uint64_t, std::size_t>> last(std::size_t{1} << bits);
  std::uint64_t hash = 0, leaving = 1;
  for (std::size_t i = 0; i < length; ++i) leaving *= kFactor;
  Gaps gaps;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    hash = hash * kFactor + tokens[i] + 1;
    if (i >= length) hash -= leaving * (tokens[i - length] + 1ULL);
    if (i + 1 < length) continue;
    auto& [seen, place] = last[(hash ^ (hash >> 29)) * kFactor >> (64 - bits)];
    if (place > 0 && seen == hash) gaps.add(i + 1 - place);
    seen = hash;
    place = i + 1;
  }
  return gaps.most_frequent();
}

struct Stretch {
  std::size_t first = 0, length = 0;  // the longest with tokens[i] == tokens[i + period]
  std::size_t equal = 0;              // in all
};

Stretch stretch_of(std::span<const std::uint32_t> tokens, std::size_t period) {
  Stretch best;
  std::size_t run = 0;
  for (std::size_t i = 0; i + period < tokens.size(); ++i) {
    run = tokens[i] == tokens[i + period] ? run + 1 : 0;
    best.equal += run > 0;
    if (run > best.length) best = {i + 1 - run, run, best.equal};
  }
  return best;
}

}  // namespace

std::optional<Pattern> find_pattern(std::span<const std::uint32_t> tokens) {
  std::vector<std::size_t> candidates;
  for (std::size_t length = 1; length * kFewestRepetitions <= tokens.size(); length *= 4)
    for (const std::size_t gap : frequent_gaps(tokens, length)) candidates.push_back(gap);
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  std::vector<Pattern> found;
  std::size_t longest = 0;
  for (const std::size_t period : candidates) {
    if (period * kFewestRepetitions > tokens.size()) continue;
    const Stretch stretch = stretch_of(tokens, period);
    if (stretch.length + period < kFewestRepetitions * period) continue;
    if (2 * (stretch.equal + period) < tokens.size()) continue;
    found.push_back({stretch.first, stretch.length + period, period});
    longest = std::max(longest, found.back().length);
  }
  for (const Pattern& pattern : found)  // by period
    if (5 * pattern.length >= 4 * longest) return pattern;
  return {};
}

}  // namespace superneurons
