// The interface of a memory policy: a pure function from trace, profile, budget and incoming plan
// to a plan. No clock, I/O, globals or hidden randomness. Policies are passes; they compose left to
// right.
#pragma once

#include <atomic>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/dataflow.h"
#include "ir/device_profile.h"
#include "ir/plan.h"
#include "ir/prediction.h"
#include "ir/result.h"

namespace superneurons {

class Footprints;  // memory/footprints.h

struct PolicyContext {
  const Trace& trace;
  const Dataflow& flow;
  const DeviceProfile& profile;
  Budget budget;
  Predict predict;
  std::map<std::string, std::string>
      options;           // checked against PolicyEntry::options by the registry
  bool explain = false;  // fill plan.reasons
  const std::atomic<bool>* stop = nullptr;
  const Footprints* footprints = nullptr;  // of the trace, for searches; null: whoever asks waits
  Nanoseconds to_beat = kLatest;  // another plan is predicted to take that long: one that takes as
                                  // long is of no use
};

using PolicyFunction = Result<Plan> (*)(const PolicyContext& context, const Plan& incoming);

struct OptionEntry {
  std::string_view name;
  std::string_view fallback;  // default value
  std::string_view summary;
};

struct PolicyEntry {
  std::string_view name;     // snake_case, unique
  std::string_view summary;  // one line
  std::vector<Fact> needs;   // refused where the trace has Capability::none for one of them
  std::vector<OptionEntry> options;
  PolicyFunction plan = nullptr;
  bool any_budget = false;  // true: its plan does not depend on the budget
  bool bounded = false;  // true: plans less the longer the trace, so that it is tried where other
                         // alternatives are not for want of time (policies/alternatives.h)
};

/// A name for a composition, e.g. superneurons = liveness+offload+...
struct CompositionEntry {
  std::string_view name;
  std::string_view passes;
  std::string_view summary;
};

/// A framework's memory strategy as far as it is documented: a model, not the program. What it
/// makes and shares is a lowering (networks/lowering_style.h, where the sources stand), what it
/// frees and repeats are passes. Refused on a trace of another lowering.
struct ModelEntry {
  std::string_view name;
  std::string_view passes;
  std::string_view lowering;  // Trace::lowering
  std::string_view summary;
};

std::span<const PolicyEntry> policies();
std::span<const CompositionEntry> compositions();
std::span<const ModelEntry> framework_models();
/// Nothing if there is none of that name.
const ModelEntry* find_model(std::string_view name);

/// Runs "pass[:key=value[,key=value]]+pass..." (or the name of a composition or of a model, or
/// "exec:COMMAND") starting from keep_all_plan(trace). Of alternatives, "a+b/c", it takes the plan
/// that fits and is predicted to be the fastest. check() runs after every pass, place() after the
/// last, both against `budget`; where the policy's plan for it does not fit, those for other
/// budgets are tried as smallest_budget() does, and the first that fits is taken. Error
/// does_not_fit where none does; its Shortage names the floor of this policy. Unknown names:
/// bad_usage with "did you mean".
struct PlanRequest {
  std::string policy;
  Budget budget;
  std::string allocator = "first_fit";
  bool explain = false;
  const std::atomic<bool>* stop = nullptr;
  bool seek_floor = true;  // false: a guess, for searches. Where the policy's plan for this budget
                           // does not fit, only its plan for none at all is tried, so that a
                           // refusal is not final, and the Shortage names no floor
};
Result<Plan> make_plan(const Trace& trace, const DeviceProfile& profile, const PlanRequest& request,
                       const Predict& predict);

/// Smallest device budget found at which `policy` gives a plan that places, to the allocation unit,
/// and the op that sets it. At this budget and above make_plan succeeds.
struct Floor {
  Bytes budget{};
  std::string op;
};
Result<Floor> smallest_budget(const Trace& trace, const DeviceProfile& profile,
                              const PlanRequest& request, const Predict& predict);

/// A sentence for each pass of the policy that has nothing to do on this trace whatever the budget,
/// and what would give it something, and one where none frees what is no longer needed: for people,
/// who may have expected more. Nothing for text that is no policy.
std::vector<std::string> idle_passes(const Trace& trace, std::string_view policy);

}  // namespace superneurons
