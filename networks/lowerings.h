#pragma once

#include "networks/trace_builder.h"

namespace superneurons {

/// Forward and backward ops of either lowering.
void lower_native(TraceBuilder& builder);
void lower_paper(TraceBuilder& builder);

}  // namespace superneurons
