// How much of a property test runs: all of it, or less under the sanitizers, which make a case take
// ten times as long and look for something else: for what no case may do.
#pragma once

#include <cstddef>
#include <vector>

namespace superneurons {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// That many random cases; an eighth under the sanitizers.
constexpr int cases(int all) { return kSanitized ? (all + 7) / 8 : all; }

/// All of these; under the sanitizers every third, beginning with the first.
template <typename T>
std::vector<T> some_of(std::vector<T> all) {
  if (!kSanitized) return all;
  std::vector<T> some;
  for (std::size_t i = 0; i < all.size(); i += 3) some.push_back(all[i]);
  return some;
}

}  // namespace superneurons
