// The LRU tensor cache of SuperNeurons (PPoPP 2018, section 3.3.2, algorithm 2): tensors leave the
// device only when memory is short, the least recently used first, and come back when needed. The
// paper's runtime meets the shortage as it runs; here it is met when planning, with the same
// decisions. What the paper does on demand (prefetch=demand) is then moved beside the ops as far as
// there is room (prefetch=ahead; prefetch=patient looks longer for the room).
#include <algorithm>
#include <optional>
#include <utility>

#include "memory/placement.h"
#include "policies/cache_needs.h"
#include "policies/cache_walk.h"
#include "policies/options.h"
#include "policies/overlap.h"
#include "policies/passes.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

constexpr std::string_view kName = "tensor_cache";

constexpr std::int64_t kWork = 1'000'000;  // plan steps that patience may place
constexpr std::int64_t kMostPatience = 400;

struct Options {
  bool ahead = true;
  bool patient = false;
  CacheOptions cache;
};

Result<Options> parse(const PolicyContext& context) {
  const Result<std::string> evict = one_of(context, kName, "evict", {"lru", "belady"});
  const Result<std::string> prefetch =
      one_of(context, kName, "prefetch", {"ahead", "patient", "demand"});
  const Result<Bytes> least = bytes_of(context, kName, "min");
  for (const Error* error :
       {evict ? nullptr : &evict.error(), prefetch ? nullptr : &prefetch.error(),
        least ? nullptr : &least.error()})
    if (error != nullptr) return *error;
  return Options{*prefetch != "demand",
                 *prefetch == "patient",
                 {*evict == "lru" ? Evict::least_recent : Evict::furthest_use, *least, {}}};
}

/// Where offsets are not found in the order of the plan, what the walk saw as room may not be any
/// when the plan is placed: then it tries again with less.
Plan walk_until_it_places(const PolicyContext& context, const Plan& incoming,
                          CacheOptions options) {
  constexpr int kParts = 32;
  const Bytes whole = options.capacity;
  std::optional<Plan> first;
  for (const int less : {0, 1, 2, 4, 6, 8, 12, 16}) {
    options.capacity = Bytes{whole.count - whole.count / kParts * less};
    CacheResult result = cache_walk(context, incoming, options);
    if (fits(context, result.plan)) return std::move(result.plan);
    if (!first) first = std::move(result.plan);
    if (stopped(context) || result.overflowed || whole > context.budget.device) break;
  }
  return smaller_of(context, std::move(*first), incoming);
}

}  // namespace

Result<Plan> tensor_cache(const PolicyContext& context, const Plan& incoming) {
  Result<Options> options = parse(context);
  if (!options) return options.error();
  if (fits(context, incoming)) return incoming;
  // Below the floor nothing fits: the plan for the floor then says how much does.
  options->cache.capacity = std::max(context.budget.device, cache_floor(context, incoming));
  Plan plan = walk_until_it_places(context, incoming, options->cache);
  if (!options->ahead) return plan;
  const auto steps = static_cast<std::int64_t>(std::max<std::size_t>(plan.steps.size(), 1));
  const std::int64_t patience = std::clamp<std::int64_t>(kWork / steps, 4, kMostPatience);
  return overlap(context, plan, {true, options->patient ? static_cast<int>(patience) : 0});
}

}  // namespace superneurons
