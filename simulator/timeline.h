// Timeline: what happened when in one training step, predicted or measured, and where time was
// lost.
#pragma once

#include <array>
#include <vector>

#include "simulator/program.h"

namespace superneurons {

/// One command on its stream. Times count from the start of the training step.
struct Span {
  std::uint32_t command = 0;
  Nanoseconds start{};
  Nanoseconds end{};
};

struct Timeline {
  std::vector<Span>
      spans;              // in issue order; may be empty where a backend was not asked to keep them
  Nanoseconds step_ns{};  // of a steady training step
  Nanoseconds compute_ns{};                                // undisturbed time of all runs
  std::array<Nanoseconds, kCauseNames.size()> stall_ns{};  // step_ns = compute_ns + their sum
};

}  // namespace superneurons
