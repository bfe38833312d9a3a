// From the activity logs that a traced CUDA program left to traces.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/options.h"
#include "cli/session.h"
#include "tracer/from_activities.h"

namespace superneurons {

/// What the processes of a command left in `folder`, log.PID each: the trace of the command's own
/// process, `own`, or, where that did nothing on a device, of the one with most work there goes to
/// `output`, those of further processes beside it with the process's number in the name. The logs
/// are kept as `log_file`, likewise, unless that is "". Error where there is no work.
Status convert_logs(const std::string& folder, pid_t own, const std::string& command,
                    const std::string& output, const ActivityOptions& options,
                    const std::string& log_file, const Session& session);

/// --window and --range-depth.
void add_window_options(cli::Command& command, ActivityOptions& options);

/// Where temporary files go: $TMPDIR, else /tmp. Error where that is no folder.
Result<std::string> temporary_folder();

/// Whether a file begins as an activity log does.
bool is_activity_log(const std::string& path);
/// A log that was kept, a file, for it is read twice → trace.
Status convert_log(const std::string& log, const std::string& output,
                   const ActivityOptions& options, const Session& session);

}  // namespace superneurons
