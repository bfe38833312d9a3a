// What passes share to read a plan and to change it: who touches which tensor when, a clock, and
// edits that are applied in one go. Everything is linear in the plan but for one sort of the edits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "policies/policy.h"

namespace superneurons {

/// What one plan step does to one tensor.
struct Touch {
  std::uint32_t step = 0;
  StepKind kind = StepKind::run;
  bool needs = false;  // reads the device copy, or keeps bytes of it
  bool makes = false;  // leaves a new device copy: written by a run, or prefetched
};

/// The touches of every tensor, in plan order. Outputs that a run discards or its choice omits, and
/// `once` outputs of reruns, are not touched.
class Touches {
 public:
  Touches(const PolicyContext& context, const Plan& plan);
  std::span<const Touch> operator[](TensorId tensor) const {
    return std::span(touches_).subspan(first_[tensor.index],
                                       first_[tensor.index + 1] - first_[tensor.index]);
  }

 private:
  std::vector<Touch> touches_;
  std::vector<std::uint32_t> first_;
};

/// Versions that a run step needs, given whether it is a rerun.
std::span<const Value> needs_of(const PolicyContext& context, const PlanStep& step, bool rerun);

/// Whether the run leaves a value that its op makes on the device: it is neither discarded nor
/// omitted.
bool is_made(const PolicyContext& context, const PlanStep& step, const Value& value);

/// Calls `visit` with the versions that a run step makes.
template <class Visit>
void visit_makes(const PolicyContext& context, const PlanStep& step, bool rerun,
                 const Visit& visit) {
  const OpFlow& flow = context.flow[step.op()];
  for (const Value& value : rerun ? flow.rerun_makes : flow.makes)
    if (is_made(context, step, value)) visit(value);
}

/// rerun[i]: step i runs an op that an earlier step ran.
std::vector<bool> reruns(const Trace& trace, const Plan& plan);

/// How many of the steps before each plan step are runs, one more for the end.
std::vector<std::uint32_t> runs_before(const Plan& plan);

/// Device time at which each plan step starts if nothing ever waits, one more for the end.
std::vector<Nanoseconds> clock_of(const PolicyContext& context, const Plan& plan);

/// Device time of all runs: no step that follows the plan takes less.
Nanoseconds compute_time(const Footprints& footprints, const Plan& plan);

/// The step with which each layer step begins: a run of another layer or phase than the run before.
std::vector<std::uint32_t> layer_step_starts(const Trace& trace, const Plan& plan);

/// The steps that run an op.
std::vector<std::uint32_t> run_steps(const Plan& plan);

/// Of ascending `steps`, the one `count` before the last that is not after `step` (the first if
/// there are not so many).
std::uint32_t back(std::span<const std::uint32_t> steps, std::uint32_t step, std::uint32_t count);

/// Tensors at a home on the device, which a free would not give back: of single-tensor carries, and
/// the `end` of others.
std::vector<bool> pinned(const Trace& trace, const Plan& plan);

/// A value that is on the device while no step touches it for a while: `before` is the last that
/// does, `after` needs it again. `made` is the step that wrote it.
struct Idle {
  TensorId tensor;
  Version version = 0;
  std::uint32_t made = 0;
  std::uint32_t before = 0;
  std::uint32_t after = 0;
  std::uint32_t readers = 0;  // runs that need it in (made, before]
};

/// Idle values that wait from forward into backward, where most of the memory of training goes: the
/// last touch is a forward run, the next one backward (reruns count as backward). Only activations,
/// saved tensors and temporaries that are not carried; nothing that moves to the host already.
std::vector<Idle> idle_into_backward(const PolicyContext& context, const Plan& plan);

/// Where an edit goes among others at the same place.
enum class Rank : std::uint8_t { offload, free, prefetch, run, free_host };

/// Insertions and removals, applied together. `place` p stands before step p of the plan.
class Edits {
 public:
  explicit Edits(std::size_t steps) : removed_(steps, false) {}
  /// Returns a number for cancel().
  std::size_t insert(std::uint32_t place, Rank rank, PlanStep step, std::string why = "");
  void cancel(std::size_t insertion) { insertions_[insertion].cancelled = true; }
  void remove(std::uint32_t step) { removed_[step] = true; }
  /// Reasons of the plan move with their steps; those of removed steps go.
  Plan apply(const Plan& plan) &&;

 private:
  struct Insertion {
    std::uint32_t place = 0;
    Rank rank = Rank::run;
    bool cancelled = false;
    PlanStep step;
    std::string why;
  };
  std::vector<Insertion> insertions_;
  std::vector<bool> removed_;
};

inline bool stopped(const PolicyContext& context) {  // whether the caller gave up meanwhile
  return context.stop != nullptr && context.stop->load(std::memory_order_relaxed);
}

/// Whether the plan places within both budgets of the context. False at once when stopped.
bool fits(const PolicyContext& context, const Plan& plan);
/// The same in another arena.
bool fits(const PolicyContext& context, const Plan& plan, Bytes arena);

/// The smallest arena in which the plan places; nothing if it does not place at all.
std::optional<Bytes> arena_of(const PolicyContext& context, const Plan& plan);

/// memory/placement.h's workspace_rooms(); nothing where that is an Error.
std::optional<std::vector<Bytes>> rooms_of(const PolicyContext& context, const Plan& plan,
                                           Bytes arena);

/// Whichever plan places in the smaller arena; `a` if they are equal.
Plan smaller_of(const PolicyContext& context, Plan a, const Plan& b);

/// The smallest `count` in [0, all] for which `build(count)` fits, or up to `grain` - 1 more,
/// assuming that more never needs more memory; `all` if none does, or when stopped: then no plan
/// matters any more. About log2(all / grain) plans are built and placed.
std::size_t fewest_that_fit(const PolicyContext& context, std::size_t all,
                            const std::function<Plan(std::size_t)>& build, std::size_t grain = 1);

}  // namespace superneurons
