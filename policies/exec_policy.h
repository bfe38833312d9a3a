// A policy that is any program: "exec:COMMAND" or "exec,timeout=SECONDS:COMMAND". /bin/sh runs the
// command. On standard input it gets the text of the trace (traces/FORMAT.md), one line with the
// device profile as a JSON object, and one line
//     {"allocator":"NAME","budget":{"device":BYTES,"host":BYTES},"trace":"HASH"}
// HASH is what its plan must name as its trace. Every `run` names a choice: op.recorded is the one
// that the recorded step took. On standard output it must write the text of a plan and then exit
// with status 0. Its plan is checked like any other.
#pragma once

#include <string_view>

#include "policies/policy.h"

namespace superneurons {

bool is_exec(std::string_view policy);
/// bad_usage for a malformed request; the command itself is not tried.
Status check_exec(std::string_view policy);

/// bad_usage for a malformed request; bad_input if the command cannot run, fails, is killed, takes
/// longer than its timeout (60 s), writes more than 256 MiB, or writes something that is no plan of
/// this trace: with its exit status and the last line of its standard error; cancelled on request.
Result<Plan> exec_policy(const Trace& trace, const DeviceProfile& profile,
                         const PlanRequest& request);

}  // namespace superneurons
