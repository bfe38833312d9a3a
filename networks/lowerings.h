#pragma once

#include "networks/lowering_style.h"
#include "networks/trace_builder.h"

namespace superneurons {

/// Forward and backward ops: of a runtime with such habits, and of the paper's.
void lower_native(TraceBuilder& builder, const LoweringStyle& style);
void lower_paper(TraceBuilder& builder);

}  // namespace superneurons
