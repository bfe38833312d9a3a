// The driver's allocations as tensors of a trace of a training step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ir/trace.h"
#include "tracer/program_activity.h"

namespace superneurons {

/// Adds them and what is carried. `op_of` has the op of each launch of the window. An allocation of
/// before the window that is freed in it goes on in one of the same size that is made in it and
/// stays; returns how many found none, and are taken to stay.
std::size_t add_allocations(const ProgramActivity& program, RangeSpan window,
                            const std::vector<std::uint32_t>& op_of, Trace& trace);

}  // namespace superneurons
