// What runs take and what may leave: the facts that the tensor cache decides on.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "policies/policy.h"

namespace superneurons {

/// What the cache knows of a tensor at the current step.
struct Cached {
  bool on_device = false, on_host = false;
  bool current = false;  // the host copy holds the value
  // What the incoming plan has here: its copies are not ours to drop.
  bool in_device = false, in_host = false;
  bool host_home = false;
  bool locked = false;
  std::optional<Bytes> offset, host_offset;  // none: not in the arena
  std::uint32_t next = 0;                    // first touch that is still to come
  std::int64_t rank = 0;                     // place in the order of eviction
};

/// How far a tensor may be moved about.
enum class Freedom : std::uint8_t {
  evictable,
  stays,   // takes bytes while it is there, and never leaves by itself
  at_home  // on the device: its bytes are taken throughout
};

/// By tensor.
std::vector<Freedom> freedoms(const Trace& trace, const Plan& plan);

/// What one run takes beside its inputs, in the order in which placement grants it.
struct Grants {
  std::vector<TensorId> outputs;  // that it makes, present or not
  std::vector<Bytes> transient;   // workspace, then scratch
};

/// `step` is a run.
Grants grants_of(const PolicyContext& context, const PlanStep& step, bool rerun);

/// The least capacity with which the cache can work: homes and the operands, workspace and scratch
/// of the largest run. No allocator makes do with less.
Bytes cache_floor(const PolicyContext& context, const Plan& plan);

}  // namespace superneurons
