// trace -- CMD: any CUDA program → a trace per process of what its device did.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "cli/session.h"
#include "tracer/from_activities.h"

namespace superneurons {

/// libsuperneurons_cupti.so: beside this program, or in the lib folder of where it was installed.
Result<std::string> find_library();

/// Where a command may be that is called by this word: the word itself if it has a slash, else in
/// the folders of $PATH.
std::vector<std::string> places_of(const std::string& word);

/// The exit code that a shell gives for a command that it cannot start, which is then said: 127 not
/// found, 126 found and not to be executed. 0: it can be started.
int cannot_start(const std::string& word, Console& console);

struct Ended {
  pid_t process = 0;
  int exit_code = 0;  // 128 + signal where one ended it, as shells say it
};

/// Runs a command to its end, a script without a first line by /bin/sh. Ctrl-C reaches it too, for
/// it is in our process group. Error bad_usage where it cannot be started.
Result<Ended> run_command(std::vector<std::string> command, std::vector<std::string> environment);

/// Says that, with the exit code of a shell for it; of other errors itself.
Status not_run(const Error& error, Session& session);

/// This environment with these variables added or replaced.
std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& added);

/// Runs the command with the tracer injected by the CUDA driver and by NVTX, and makes traces of
/// what its processes did, as convert_logs() says. The command's exit code becomes that of the
/// program. Error where it cannot be started, the tracer is not there, or no process used CUDA.
Status trace_program(const std::vector<std::string>& command, const std::string& output,
                     const ActivityOptions& options, const std::string& log_file, Session& session);

}  // namespace superneurons
