// Placement: addresses are decided once, in plan order, by a pure function. Policies, checker and
// driver call this one; a plan is feasible only if it places.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/plan.h"
#include "ir/result.h"

namespace superneurons {

enum class Space : std::uint8_t { device, host };              // the memory it lies in
enum class Use : std::uint8_t { tensor, workspace, scratch };  // what is kept there

struct Range {  // of an arena or of the pinned pool
  Bytes offset{};
  Bytes bytes{};  // as asked for; the allocator rounds
};

struct Allocation {  // a range and what it was handed out for
  Space space = Space::device;
  Use use = Use::tensor;  // workspace and scratch last for their plan step only
  TensorId tensor;        // tensor and scratch (the discarded output)
  Range range;
};

struct Placement {
  std::vector<Allocation> homes;  // carried tensors, device and host, in the order of trace.carry
  std::vector<Allocation> allocations;  // made by the steps, in plan order
  std::vector<std::uint32_t> first;     // step i made allocations [first[i], first[i + 1])
  Bytes live_peak{};                    // most bytes asked for at one time (homes count throughout)
  std::uint32_t live_peak_step = 0;
  Bytes placed_peak{};  // end of the highest device range, rounded: the arena needed
  std::uint32_t placed_peak_step = 0;
  Bytes used_peak{};  // end of the highest device range handed out, rounded up to kAllocationUnit:
                      // what a replay measures; below placed_peak where `pytorch_caching` holds
                      // segments of which nobody has the end
  Bytes host_peak{};  // end of the highest host range, rounded: the pinned pool needed
};

struct PlacementOptions {
  Bytes guard{};  // extra bytes before and after every device range (replay --guards)
};

/// Offset of every range, or an Error does_not_fit with a Shortage and the plan step and op that
/// failed. Uses plan.allocator; `arena` caps the device, plan.budget.host the host (first fit).
/// Homes, device and host, are reserved for the whole training step and their tensors go back to
/// them; the `end` tensor of a two-tensor carry goes into the home of its `start`, which must be
/// empty by then (free or free_host it first). Error unlawful where a step cannot be placed
/// whatever the arena, bad_usage for an unknown allocator.
Result<Placement> place(const Trace& trace, const Plan& plan, Bytes arena,
                        const PlacementOptions& options = {});

/// Whether place() finds a range for everything: the same answer sooner, for searches that ask
/// often. False of a plan that cannot be placed at all.
bool fits(const Trace& trace, const Plan& plan, Bytes arena);

/// The smallest arena in which the plan places with its allocator, whatever the host budget: one
/// unit less is refused. It is the placed_peak of `place` in any larger arena, but for
/// `pytorch_caching`, which makes do with less where there is less. Also what `smallest feasible
/// budget` means for a fixed plan.
Result<Bytes> smallest_arena(const Trace& trace, const Plan& plan);

/// By plan step, the most workspace that a run could be granted beside everything else that the
/// plan has in the arena then, 0 for other steps: the largest hole when the run asks, less its
/// scratch. Exact for allocators whose offsets depend only on what is resident (first_fit,
/// best_fit): there a grant, taken and given back within its step, moves nothing else, so that all
/// grants within their rooms place together. An estimate for the others. Errors as of `place`.
Result<std::vector<Bytes>> workspace_rooms(const Trace& trace, const Plan& plan, Bytes arena);

/// Bytes that a run of the op takes with this choice, as operands and workspace are resident
/// together: each tensor once; what the choice omits only if the op also reads it.
Bytes working_set(const Trace& trace, const Op& op, const Choice& choice);

/// The largest working set of any op (operands + workspace of its smallest choice + homes that
/// cannot leave are NOT added): no plan of any policy goes below. Sets `op` to who sets it.
Bytes largest_working_set(const Trace& trace, OpId* op = nullptr);

/// Device bytes resident after each plan step (during it, for workspace), one row per step.
struct Residency {
  Bytes total{};      // asked-for bytes, homes included
  Bytes workspace{};  // of total: workspace and scratch of this step
  std::array<Bytes, kRoleNames.size()> by_role{};
};
std::vector<Residency> residency(const Trace& trace, const Plan& plan);

}  // namespace superneurons
