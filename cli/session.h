// What the commands share: options, loading, errors, exit codes. Only in cli/ does the program
// print and exit.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/options.h"
#include "ir/device_profile.h"
#include "ir/plan.h"
#include "ir/result.h"
#include "ir/trace.h"
#include "policies/policy.h"
#include "simulator/outcome.h"

namespace superneurons {

struct Session {
  const std::atomic<bool>& stop;    // set by Ctrl-C
  std::atomic<bool>& ends_at_once;  // see EndsAtOnce
  Console& console;
  std::string command_line;  // as it was called, for results
  std::string made_by;       // without the name of the output: for the origin of what is written
  std::string today;         // "2026-11-30", for origins
  std::vector<std::string> program;  // the words after --: a command for `trace`
  int exit_code = 0;
  std::map<std::string, std::string> options;  // of the command that runs, defaults filled in
};

/// While one lives, the first Ctrl-C ends the program with 130 instead of setting Session::stop:
/// for work that never looks at that, such as a read that waits, and that leaves nothing to tidy up
/// (write_file() holds signals off while its temporary file exists).
class EndsAtOnce {
 public:
  explicit EndsAtOnce(const Session& session)
      : flag_((session.console.flush(), session.ends_at_once)), before_(flag_.exchange(true)) {}
  ~EndsAtOnce() { flag_.store(before_); }
  EndsAtOnce(const EndsAtOnce&) = delete;
  EndsAtOnce& operator=(const EndsAtOnce&) = delete;

 private:
  std::atomic<bool>& flag_;
  bool before_;
};

/// Adds a subcommand. Its callback notes the options, sees that the outputs can be written, runs
/// `work` and turns its Error into a message and an exit code. `example` closes the help text.
cli::Command* add_command(cli::App& app, Session& session, const std::string& name,
                          const std::string& summary, const std::string& example,
                          std::function<Status()> work);

/// 1: the answer is no; 2: bad usage or bad input; 130: interrupted.
int exit_code_of(const Error& error);

/// An option that names a file to write: whether that is possible is known before any work.
cli::Option* add_output_option(cli::Command& command, const std::string& names, std::string& file,
                               const std::string& summary);
/// `--json FILE`; "-" leaves standard output to the JSON.
void add_json_option(cli::Command& command, std::string& file);
/// Writes `text` to `file` unless that is empty.
Status write_json(const std::string& file, const std::string& text);

/// Whether all of `files` can be opened ("-" only once), which would else only show after the work
/// on those before it.
Status can_be_read(const std::vector<std::string>& files);

/// `--seed`, a whole number.
void add_seed_option(cli::Command& command, std::uint64_t& seed, const std::string& summary);

/// The pieces of "a,b", empty ones too.
std::vector<std::string> split_list(const std::string& text);

/// `status`; that something does not fit, or that a plan is not lawful, is written as JSON as well,
/// if `json` names a file.
Status with_refusal(Status status, const std::string& json, const Session& session);

/// Options that say which trace, on which device, under which budget.
struct Target {
  std::string trace;
  std::string profile;      // "": that of the device which the trace was measured on, else h200
  std::string budget;       // "12GiB", "60%"; "": the device's memory
  std::string host_budget;  // "": the profile's
  std::string allocator = "first_fit";
  std::string scale = "1";  // "1/1024": sizes divided, to replay a large trace on a small host
};
void add_trace_option(cli::Command& command, Target& target);
/// All but the trace and the budget.
void add_setting_options(cli::Command& command, Target& target);
void add_budget_option(cli::Command& command, Target& target);

/// The trace with --scale-bytes applied.
Result<Trace> load_trace(const Target& target);
struct Loaded {
  Trace trace;
  DeviceProfile profile;
  std::string scaled_from{};    // device that the ops were measured on, where that is another
  std::string recorded_hash{};  // of the trace before its times were scaled; "": they were not
};
/// With --device, the times of a trace of another device are scaled to that one, if there is a
/// profile of both. Notes it, and where times are of another device all the same.
Result<Loaded> load(const Target& target, const Session& session);
/// "batch 64, "; nothing where the trace does not tell its batch.
std::string batch_text(const Trace& trace);
/// What plans name the trace by: scaled times do not make it another trace.
std::string hash_of(const Loaded& loaded);

/// Names and paths of the files NAME + `suffix` in `folder`, where the program was installed or, if
/// there is nothing, where it was built.
std::vector<std::pair<std::string, std::string>> files_in(const std::string& folder,
                                                          std::string_view suffix);
/// The path of a file that is named by its path, or by its name among files_in(). Error bad_usage
/// that lists what there is; `what` it would be: "device profile".
Result<std::string> find_file(const std::string& name, const std::string& folder,
                              std::string_view suffix, std::string_view what);
/// A profile by file or by name (traces/profiles/NAME.json, also where they were installed).
Result<DeviceProfile> find_profile(const std::string& name);
/// The profile of that device, as traces name it; none where nobody has one.
std::optional<DeviceProfile> find_profile_of(const std::string& device);
/// The same; h200 where none is found.
Result<DeviceProfile> profile_measured_on(const std::string& device);
/// Names and files of all profiles found.
std::vector<std::pair<std::string, std::string>> profile_files();

/// Whether a budget is written as one: a size, a percentage up to 1000%, or "floor". Error
/// bad_usage.
Status check_budget(const std::string& text);

/// Percent budgets are of the liveness peak (placed).
Result<Budget> budget_of(const Target& target, const Loaded& loaded, const std::string& text);

/// A plan from --plan FILE (checked against the trace's hash) or by --policy.
struct PlanSource {
  std::string policy;
  std::string plan_file;
  bool explain = false;
};
void add_plan_options(cli::Command& command, PlanSource& source);
/// --plan FILE, refused if it was made for another trace.
Result<Plan> read_plan_for(const std::string& hash, const PlanSource& source, const Target& target);
Result<Plan> plan_from(const PlanSource& source, const Target& target, const Loaded& loaded,
                       const Session& session);

/// Whether --on asks for the GPU: "host", "cuda", or "" for the GPU where there is one. Error where
/// CUDA is asked for and missing.
Result<bool> wants_cuda(const std::string& on);
/// Convolutions and matrix products whose choice names no algorithm, as in a network that nobody
/// recorded, take one that this GPU offers, with its workspace: most have none that needs none.
/// Nothing happens in a build without CUDA. Errors as enumerate_choices() (replay/cuda/choices.h).
Status take_machine_kernels(Trace& trace);
/// "host backend", or the GPU with driver and libraries; and the device alone, as profiles name it.
std::string machine_versions(bool on_cuda);
std::string machine_device(bool on_cuda);

// One per file in cli/.
void add_list_commands(cli::App& app, Session& session);
void add_trace_command(cli::App& app, Session& session);
void add_convert_command(cli::App& app, Session& session);
void add_build_command(cli::App& app, Session& session);
void add_show_command(cli::App& app, Session& session);
void add_check_command(cli::App& app, Session& session);
void add_plan_command(cli::App& app, Session& session);
void add_simulate_command(cli::App& app, Session& session);
void add_explain_command(cli::App& app, Session& session);
void add_fit_command(cli::App& app, Session& session);
void add_compare_command(cli::App& app, Session& session);
void add_replay_command(cli::App& app, Session& session);
void add_calibrate_command(cli::App& app, Session& session);

}  // namespace superneurons
