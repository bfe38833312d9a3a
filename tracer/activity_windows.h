// The training steps of a program: which launches are one, and where it was seen again.
#pragma once

#include <string>
#include <vector>

#include "ir/result.h"
#include "tracer/program_activity.h"

namespace superneurons {

/// Kernels and copies in one trace, of which they make about 500 MB.
inline constexpr std::uint32_t kMostInOneTrace = 500'000;

/// Stretches of launches that do the same, in order; the last is the one that a trace is made of.
struct Windows {
  std::vector<RangeSpan> alike;
  std::string range;  // the range that each is an instance of, or ""
  std::string told;   // a sentence: what they are
};

/// Of "range:NAME", "pattern", "whole" or "" (a pattern if there is one, else the whole). A pattern
/// starts where the driver's allocations are smallest, and of such places where the host paused
/// longest. Error bad_usage where there is no such window.
Result<Windows> find_windows(const ProgramActivity& program, const std::string& window);

/// NAME of "range:NAME", or "".
std::string range_of(const std::string& window);

}  // namespace superneurons
