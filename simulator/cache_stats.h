// What the device memory of a plan looks like as a cache of tensors (SuperNeurons, PPoPP 2018,
// algorithm 2), counted from the plan itself: whoever made it.
#pragma once

#include <cstdint>

#include "ir/plan.h"

namespace superneurons {

/// Tensors at home on the device are no part of the cache.
struct CacheStats {
  std::int64_t hits = 0;             // operands of runs that were on the device
  std::int64_t misses = 0;           // operands that were prefetched since an op last touched them
  std::int64_t evictions = 0;        // frees of values that come back
  std::int64_t clean_evictions = 0;  // of them: the host had a copy already from before
  friend bool operator==(const CacheStats&, const CacheStats&) = default;
};

/// Linear in the accesses of the runs. Any plan that check() accepts.
CacheStats cache_stats(const Trace& trace, const Plan& plan);

}  // namespace superneurons
