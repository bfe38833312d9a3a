// The machine of the tensor cache: walks a plan with the allocator at its side and makes room where
// there is none.
#pragma once

#include <cstdint>
#include <vector>

#include "policies/policy.h"

namespace superneurons {

enum class Evict : std::uint8_t { least_recent, furthest_use };

struct CacheOptions {
  Evict evict = Evict::least_recent;
  Bytes least{};     // smaller tensors leave only when no larger one can
  Bytes capacity{};  // of the arena
};

struct CacheResult {
  Plan plan;
  bool overflowed = false;  // something found no room although all that may leave had left
};

/// SuperNeurons (PPoPP 2018), algorithm 2, over a finished plan. Check(T) of every operand of a
/// run: on the device it is a hit and becomes the most recently used; if not, it is brought from
/// the host (miss), or allocated if the run makes it. Where the allocation fails, out(T): the least
/// recently used tensor that no operand of this run locks goes to the host, until it succeeds. The
/// paper compares sums of bytes; here the plan's allocator itself must find the range. Beyond the
/// paper:
///   - a value whose host copy is current leaves without another copy; one that nobody needs again
///     just leaves;
///   - where holes are too small with all others gone, the run's own operands go out too and come
///     back next to one another, so that a run fits wherever its operands fit into the space that
///     homes leave;
///   - prefetches of the incoming plan for which there is no room wait until the need.
/// Runs stay in order and nothing else moves. Tensors at home on the device never leave.
CacheResult cache_walk(const PolicyContext& context, const Plan& plan, const CacheOptions& options);

}  // namespace superneurons
