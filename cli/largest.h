// The largest value that fits, found in few tries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>

#include "ir/result.h"

namespace superneurons {

struct Largest {
  std::int64_t value = 0;              // fits; 0: not even 1 does
  std::map<std::int64_t, bool> tried;  // value + 1 was tried and does not fit, unless value is the
                                       // limit
};

/// Doubles from 1 until `fits(value)` (a Result<bool>) says no, and halves the interval between. A
/// policy need not be monotone, so it also looks 2, 10 and 50 % further and goes on from what fits
/// there: of all that was tried, nothing larger fits. The same answers give the same tries.
template <class Fits>
Result<Largest> find_largest(std::int64_t limit, const Fits& fits) {
  Largest found;
  const auto ask = [&](std::int64_t value) -> Result<bool> {
    if (const auto known = found.tried.find(value); known != found.tried.end())
      return known->second;
    const Result<bool> answer = fits(value);
    if (answer) found.tried[value] = *answer;
    return answer;
  };
  const auto reach = [&]() -> Status {
    std::int64_t good = found.value, bad = limit + 1;
    while (good + 1 < bad) {
      const bool doubling = bad > limit;
      const std::int64_t next =
          doubling ? std::min(std::max<std::int64_t>(2 * good, 1), limit) : good + (bad - good) / 2;
      const Result<bool> answer = ask(next);
      if (!answer) return answer.error();
      (*answer ? good : bad) = next;
    }
    found.value = good;
    return Ok{};
  };
  for (bool further = true; further;) {
    if (Status reached = reach(); !reached) return reached.error();
    further = false;
    for (const std::int64_t percent : {102, 110, 150}) {
      const std::int64_t beyond = found.value * percent / 100;
      if (further || found.value == 0 || beyond <= found.value || beyond > limit) continue;
      const Result<bool> answer = ask(beyond);
      if (!answer) return answer.error();
      if ((further = *answer)) found.value = beyond;
    }
  }
  return found;
}

}  // namespace superneurons
