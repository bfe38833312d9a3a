// trace -- CMD: any CUDA program → a trace per process of what its device did.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/session.h"

namespace superneurons {

/// libsuperneurons_cupti.so: beside this program, or in the lib folder of where it was installed.
Result<std::string> find_library();

struct Ended {
  pid_t process = 0;
  int exit_code = 0;  // 128 + signal where one ended it, as shells say it
};

/// Runs a command to its end. Ctrl-C reaches it too, for it is in our process group. Error where
/// it cannot be started.
Result<Ended> run_command(std::vector<std::string> command, std::vector<std::string> environment);

/// This environment with these variables added or replaced.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& added);

/// Runs the command with the tracer injected by the CUDA driver, and writes what its first process
/// with CUDA work did to `output`, that of further processes beside it with the process's number
/// in the name. The command's exit code becomes that of the program. Error where it cannot be
/// started, the tracer is not there, or no process used CUDA.
Status trace_program(const std::vector<std::string>& command, const std::string& output,
                     Session& session);

}  // namespace superneurons
