// trace -- CMD: any CUDA program → a trace per process of what its device did.
#pragma once

#include <string>
#include <vector>

#include "cli/session.h"

namespace superneurons {

/// Runs the command with the tracer injected by the CUDA driver, and writes what its first process
/// with CUDA work did to `output`, that of further processes beside it with the process's number
/// in the name. The command's exit code becomes that of the program. Error where it cannot be
/// started, the tracer is not there, or no process used CUDA.
Status trace_program(const std::vector<std::string>& command, const std::string& output,
                     Session& session);

}  // namespace superneurons
