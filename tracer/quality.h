// What a recorded trace is worth: whether it gives back what the recording itself measured. A trace
// that does not reproduce its own peak cannot judge a policy.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/trace.h"

namespace superneurons {

/// A trace is doubted below this share of device time that belongs to ops, and above this relative
/// difference between the rebuilt peak and that of the program's allocator.
inline constexpr double kLeastOwned = 0.995;
inline constexpr double kMostPeakError = 0.01;
/// No tracer makes a training step faster: below this ratio, traced to untraced, something else
/// did.
inline constexpr double kLeastSlowdown = 0.95;

struct Quality {
  Bytes rebuilt_peak{};              // most bytes of tensors and workspaces at any op
  std::string peak_op;               // there; "" where there is no op
  std::optional<double> peak_error;  // rebuilt / allocated - 1, where the latter is known
  std::optional<double> owned;       // share of device time that belongs to ops
  std::vector<std::string> doubts;   // sentences; none: nothing speaks against the trace
};

/// Most bytes at any op of the program as it ran: tensors from their first access (or the start,
/// where carried in) until the program freed them, in pieces of 512 bytes where PyTorch's allocator
/// gave them out, and the workspace of the recorded choice. `op` gets where that is.
Bytes rebuilt_peak(const Trace& trace, std::string* op = nullptr);

Quality quality_of(const Trace& trace);

}  // namespace superneurons
