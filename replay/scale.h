// Smaller copies of a trace, so that the plan of a large one can be replayed where there is little
// memory: same ops, same order, same data flow, fewer bytes.
#pragma once

#include <cstdint>

#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

/// All sizes times numerator / denominator: tensors and workspaces rounded up (a tensor keeps at
/// least one byte), accesses from the floor of their begin to the ceiling of their end, whole
/// accesses staying whole. Attributes no longer match, so capability `native` becomes none; times
/// stay. Error bad_usage unless 0 < numerator <= denominator.
Result<Trace> scale_bytes(const Trace& trace, std::int64_t numerator, std::int64_t denominator);

}  // namespace superneurons
