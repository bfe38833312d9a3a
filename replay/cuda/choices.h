// What cuDNN and cuBLAS offer for the ops of a trace.
#pragma once

#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

/// Fills op.choices of convolution and linear ops with every algorithm x math mode that this device
/// supports within `workspace_limit`, times unknown (0): cuDNN's named algorithms, then matrix
/// products by cuBLAS for 1x1 filters, then deterministic engines of cuDNN's graph interface.
/// op.recorded is the first deterministic one
/// of cuDNN's heuristics. With `all` false only that one stays. A trace of math "fp32" gets fp32
/// choices only; one of "tf32" both. Other ops stay as they are. Error device without a GPU;
/// bad_input where an op has no deterministic choice within the limit.
Status enumerate_choices(Trace& trace, Bytes workspace_limit, bool all);

}  // namespace superneurons
