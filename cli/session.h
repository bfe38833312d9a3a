// What the commands share: options, loading, errors, exit codes. Only here and in main does the
// program print and exit.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "ir/device_profile.h"
#include "ir/plan.h"
#include "ir/result.h"
#include "ir/trace.h"
#include "policies/policy.h"

namespace superneurons {

struct Session {
  const std::atomic<bool>& stop;  // set by Ctrl-C
  std::string command_line;
  std::string today;  // "2026-11-30", for origins
  int exit_code = 0;
};

/// Adds a subcommand whose callback runs `work` and turns its Error into a message and an exit
/// code.
CLI::App* add_command(CLI::App& app, Session& session, const std::string& name,
                      const std::string& summary, std::function<Status()> work);

/// "superneurons: FILE:LINE: what is wrong" on standard error.
void print_error(const Error& error);
/// 1: the answer is no; 2: bad usage or bad input; 130: interrupted.
int exit_code_of(const Error& error);
/// A progress line on standard error, only where that is a terminal.
void print_progress(const std::string& line);

/// Options that say which trace, on which device, under which budget.
struct Target {
  std::string trace;
  std::string profile = "h200";
  std::string budget;       // "12GiB", "60%"; "": the device's memory
  std::string host_budget;  // "": the profile's
  std::string allocator = "first_fit";
  std::string scale = "1";  // "1/1024": sizes divided, to replay a large trace on a small host
};
void add_target_options(CLI::App& command, Target& target, bool with_budget = true);

struct Loaded {
  Trace trace;
  DeviceProfile profile;
};
Result<Loaded> load(const Target& target);

/// A profile by file or by name (traces/profiles/NAME.json, also where they were installed).
Result<DeviceProfile> find_profile(const std::string& name);
/// Names and files of all profiles found.
std::vector<std::pair<std::string, std::string>> profile_files();

/// Percent budgets are of the liveness peak (placed).
Result<Budget> budget_of(const Target& target, const Loaded& loaded, const std::string& text);
Predict predictor(const Trace& trace, const DeviceProfile& profile);

/// A plan from --plan FILE (checked against the trace's hash) or by --policy.
struct PlanSource {
  std::string policy;
  std::string plan_file;
  bool explain = false;
};
void add_plan_options(CLI::App& command, PlanSource& source);
Result<Plan> plan_from(const PlanSource& source, const Target& target, const Loaded& loaded,
                       const Session& session);

/// Whether --on asks for the GPU: "host", "cuda", or "" for the GPU where there is one. Error where
/// CUDA is asked for and missing.
Result<bool> wants_cuda(const std::string& on);

/// Writes `text` to `file` unless that is empty.
Status write_json(const std::string& file, const std::string& text);

// One per file in cli/.
void add_list_commands(CLI::App& app, Session& session);
void add_trace_command(CLI::App& app, Session& session);
void add_build_command(CLI::App& app, Session& session);
void add_show_command(CLI::App& app, Session& session);
void add_check_command(CLI::App& app, Session& session);
void add_plan_command(CLI::App& app, Session& session);
void add_simulate_command(CLI::App& app, Session& session);
void add_compare_command(CLI::App& app, Session& session);
void add_replay_command(CLI::App& app, Session& session);
void add_calibrate_command(CLI::App& app, Session& session);

}  // namespace superneurons
