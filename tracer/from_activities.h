// A trace of any CUDA program from what a tracer saw of its run, and nothing else
// (`superneurons trace -o T -- CMD`).
#pragma once

#include <string>
#include <vector>

#include "ir/result.h"
#include "ir/trace.h"
#include "tracer/program_activity.h"

namespace superneurons {

struct ActivityOptions {
  /// What one training step is: "range:NAME", an instance of that NVTX range; "pattern", kernels
  /// that repeat themselves; "whole", all of the run; "", a pattern if there is one, else all.
  std::string window{};
  /// Ranges deeper than that, counted from the outermost one in the window, belong to the one above
  /// them; 0: the innermost range makes the op.
  int range_depth = 0;
};

struct ActivityTrace {
  Trace trace;
  std::vector<std::string> remarks;  // sentences: what the window is, what was lost
};

/// A trace called `name`, or, where that is "", as the program was. One op per instance of an NVTX
/// range, innermost, that launched something; what was launched in no range is an op by itself.
/// Where the training step was seen several times, times are medians. Driver allocations are
/// tensors, of which lifetimes are known and accesses are not: each is written by the op before
/// which it was allocated, so that it lives, and no more is said. What lives at both ends of the
/// window is carried. Capabilities: durations, kernels, frees and host times, inferred where
/// records were lost; layers (outer ranges) and phases (ranges named forward, backward, optimizer
/// or update) inferred; no accesses. Errors: of the log, with its line; bad_usage where there is no
/// such window or too much in it for one trace.
Result<ActivityTrace> trace_from_activities(const ActivityInput& input, const std::string& name,
                                            const ActivityOptions& options);

/// Whether a window is written as one. Error bad_usage.
Status check_window(const std::string& window);

}  // namespace superneurons
