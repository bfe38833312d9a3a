// A trace of any CUDA program from what a tracer saw of the device, and nothing else
// (`superneurons trace -o T -- CMD`).
#pragma once

#include <string>

#include "ir/result.h"
#include "ir/trace.h"
#include "tracer/activity.h"

namespace superneurons {

/// Reads what write_activity_log() wrote. Errors carry file and line; a log without its end record
/// was cut off and is refused.
Result<ActivityLog> read_activity_log(const std::string& path);
Result<ActivityLog> parse_activity_log(std::string_view text, const std::string& name);

/// One op per kernel, copy or memset in the order in which they were launched, as one "training
/// step" of the whole run. Durations are exact unless records were dropped, then inferred, since a
/// lost kernel is an op that lacks; of kernels just the names. Nothing is known of storages: there
/// is no tensor, and a policy that needs `accesses` refuses. Error bad_input where the log has no
/// device activity.
Result<Trace> trace_from_activities(const ActivityLog& log, const std::string& name);

}  // namespace superneurons
