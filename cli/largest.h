// The largest value that fits, found in few tries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "ir/result.h"

namespace superneurons {

struct Largest {
  std::int64_t value = 0;              // fits; 0: not even 1 does
  std::map<std::int64_t, bool> tried;  // no larger one that fits; value + 1, unless value is the
                                       // limit
};

/// Asks `fits(value)` (a Result<bool>) at most once per value.
template <class Fits>
class Asker {
 public:
  explicit Asker(const Fits& fits) : fits_(fits) {}
  Result<bool> operator()(std::int64_t value) {
    if (const auto known = tried.find(value); known != tried.end()) return known->second;
    const Result<bool> answer = fits_(value);
    if (answer) tried[value] = *answer;
    return answer;
  }
  std::map<std::int64_t, bool> tried;

 private:
  const Fits& fits_;
};

/// From `good`, which fits (0 always does), to a value whose next one does not: by strides that
/// double until one is too far, or from 1 by doubling the value, then by halves.
template <class Ask>
Result<std::int64_t> reach(std::int64_t limit, std::int64_t good, bool by_strides, Ask& ask) {
  std::int64_t bad = limit + 1, stride = 1;
  while (good + 1 < bad) {
    std::int64_t next = good + (bad - good) / 2;
    if (bad > limit) {
      next = std::min(by_strides ? good + stride : std::max<std::int64_t>(2 * good, 1), limit);
      stride *= 2;
    }
    const Result<bool> answer = ask(next);
    if (!answer) return answer.error();
    (*answer ? good : bad) = next;
  }
  return good;
}

/// Doubles from 1 until `fits(value)` (a Result<bool>) says no, and halves the interval between. A
/// policy need not be monotone, so it also looks 2, 10 and 50 % further and goes on from what fits
/// there: of all that was tried, nothing larger fits. The same answers give the same tries.
template <class Fits>
Result<Largest> find_largest(std::int64_t limit, const Fits& fits) {
  Asker<Fits> ask(fits);
  std::int64_t value = 0;
  for (bool further = true; further;) {
    const Result<std::int64_t> reached = reach(limit, value, false, ask);
    if (!reached) return reached.error();
    value = *reached;
    further = false;
    for (const std::int64_t percent : {102, 110, 150}) {
      const std::int64_t beyond = value * percent / 100;
      if (further || value == 0 || beyond <= value || beyond > limit) continue;
      const Result<bool> answer = ask(beyond);
      if (!answer) return answer.error();
      if ((further = *answer)) value = beyond;
    }
  }
  return Largest{value, std::move(ask.tried)};
}

/// How many values in a row push_on() sees refused before it believes that nothing larger fits.
inline constexpr std::int64_t kRefusedInRow = 4;

/// Goes on from `value`, which fits (or is 0), where the refusals that were heard so far were not
/// final: `fits` is final, and dear. Looks at the next few values and 2 % further, and goes on from
/// what fits there; `tried` are its answers.
template <class Fits>
Result<Largest> push_on(std::int64_t limit, std::int64_t value, const Fits& fits) {
  Asker<Fits> ask(fits);
  for (bool further = true; further;) {
    further = false;
    std::set<std::int64_t> beyond;
    for (std::int64_t i = 1; i <= kRefusedInRow; ++i) beyond.insert(value + i);
    beyond.insert(value * 102 / 100);
    for (const std::int64_t next : beyond) {
      if (further || next <= value || next > limit) continue;
      const Result<bool> answer = ask(next);
      if (!answer) return answer.error();
      if (!*answer) continue;
      const Result<std::int64_t> reached = reach(limit, next, true, ask);
      if (!reached) return reached.error();
      value = *reached;
      further = true;
    }
  }
  return Largest{value, std::move(ask.tried)};
}

}  // namespace superneurons
