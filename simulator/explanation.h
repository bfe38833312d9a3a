// Explanation: why a plan needs the memory and the time that it needs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "simulator/outcome.h"

namespace superneurons {

/// A tensor on the device when the plan needs most.
struct Resident {
  TensorId tensor;
  Bytes bytes{};
  bool operand = false;          // of the op that runs then
  bool home = false;             // carried: its range is reserved for the whole training step
  std::uint32_t since = 0;       // plan step that put it there; 0 for homes
  std::optional<OpId> next_use;  // op that reads or writes it next, this one apart; none: no op
};

/// Time in which the compute stream did no work before a run, or in which the run was slowed.
struct Loss {
  std::uint32_t plan_step = 0;  // of the run
  Nanoseconds lost{};
  Cause cause = Cause::gap;
  std::string waited_for;  // "prefetch conv1.out"; "" where nothing in particular
};

/// One plan step of a tensor's life.
struct LifeEvent {
  std::uint32_t plan_step = 0;
  std::string what;               // "written by conv1.forward", "offload", "free"
  std::optional<Span> span;       // of what it put into a stream
  std::vector<std::string> whys;  // the policy's reasons
};

struct Explanation {
  std::uint32_t peak_step = 0;  // plan step at which most bytes are live
  Bytes peak{};
  Bytes workspace{};                // of it
  std::vector<Resident> residents;  // largest first
  std::vector<Loss> losses;         // largest first, gaps of less than 1 % of the training step
                                    // left out
};

/// Of a plan that evaluate_in_full() evaluated with spans kept.
Explanation explain(const Trace& trace, const Plan& plan, const Evaluation& evaluation);

/// Every plan step that reads, writes, moves or frees the tensor. With a plan made to explain, the
/// reasons too.
std::vector<LifeEvent> life_of(const Trace& trace, const Plan& plan, const Evaluation& evaluation,
                               TensorId tensor);

/// As text; of long lists the first `rows`.
std::string format_explanation(const Trace& trace, const Plan& plan, const Evaluation& evaluation,
                               const Explanation& explanation, std::size_t rows);
std::string format_life(const Trace& trace, const Plan& plan, TensorId tensor,
                        const std::vector<LifeEvent>& events);

/// {"format":"superneurons-explanation","version","trace","trace_hash","policy","options":{...},
///  "outcome":{...} as format_json() writes it,
///  "peak":{"plan_step","op","bytes","workspace_bytes",
///          "residents":[{"tensor","role","bytes","operand","home","since","next_use"}]},
///  "losses":[{"plan_step","op","lost_ns","cause","waited_for"}],
///  "reasons":[{"plan_step","text"}],
///  "life":{"tensor","events":[{"plan_step","what","start_ns","end_ns","why":[]}]}}
/// `life` only where a tensor was asked for, start_ns and end_ns only of what takes a stream.
std::string format_explanation_json(const Trace& trace, const Plan& plan,
                                    const Evaluation& evaluation, const Explanation& explanation,
                                    const std::map<std::string, std::string>& options,
                                    std::optional<TensorId> tensor);

}  // namespace superneurons
