// What the native kernels on the host offer for the ops of a trace.
#pragma once

#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

/// Gives convolutions their two ways on the host, times unknown (0): IM2COL with its workspace,
/// where that is within `workspace_limit`, and DIRECT without. The first is op.recorded; with `all`
/// false only that one stays. Other ops stay as they are. Error bad_input where the host has no
/// kernel for an op.
Status enumerate_host_choices(Trace& trace, Bytes workspace_limit, bool all);

}  // namespace superneurons
