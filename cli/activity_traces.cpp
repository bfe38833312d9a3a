#include "cli/activity_traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "ir/files.h"
#include "ir/trace_io.h"
#include "tracer/activity_reader.h"

namespace superneurons {
namespace {

namespace fs = std::filesystem;

/// T.jsonl.gz of process 17 → T-17.jsonl.gz.
std::string with_process(const std::string& output, const std::string& process) {
  const auto name = output.find_last_of('/') + 1;  // 0 if there is none
  const auto dot = output.find('.', name);
  const auto stem = dot == std::string::npos || dot == name ? output.size() : dot;
  return output.substr(0, stem) + "-" + process + output.substr(stem);
}

std::vector<fs::path> logs_in(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().filename().string().rfind("log.", 0) == 0) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

/// A process's log and what is in it.
struct ProcessLog {
  fs::path path;
  std::string process;
  std::int64_t works = 0;  // kernels and copies
};

/// Those with device work; first the one that gets the plain name: the command's own, or, where
/// that did nothing on a device (a shell, a launcher), the one that did most.
Result<std::vector<ProcessLog>> logs_with_work(const fs::path& folder, pid_t own) {
  std::vector<ProcessLog> logs;
  for (const fs::path& path : logs_in(folder)) {
    const auto works = count_works(path.string());
    if (!works) return works.error();
    if (*works > 0) logs.push_back({path, path.extension().string().substr(1), *works});
  }
  std::stable_sort(logs.begin(), logs.end(), [&](const auto& a, const auto& b) {
    const std::string main = std::to_string(own);
    if ((a.process == main) != (b.process == main)) return a.process == main;
    return a.works > b.works;
  });
  return logs;
}

/// Writes the trace and says what it is.
Status store(ActivityTrace made, const std::string& output, const Session& session,
             const std::string& where) {
  Trace& trace = made.trace;
  trace.origin = fmt::format("{} ({}); {}", session.made_by, where, made.remarks.front());
  std::size_t kernels = 0;
  for (const Op& op : trace.ops) kernels += op.kernels.size();
  if (Status status = write_trace(trace, output); !status) return status;
  session.console.note(fmt::format("{}: {} ops of {} kernels and copies, {} allocations, {}",
                                   output, trace.ops.size(), kernels, trace.tensors.size(),
                                   format_time(trace.step_ns_traced)));
  for (const std::string& remark : made.remarks) session.console.note(remark);
  return Ok{};
}

/// `kept`: where the log stays, or "".
Status convert(const ProcessLog& log, const std::string& name, const std::string& output,
               const ActivityOptions& options, const std::string& kept, const Session& session) {
  auto made = trace_from_activities({.path = log.path.string(), .folder = log.path.parent_path()},
                                    name, options);
  if (!made) {
    if (made.error().code == ErrorCode::bad_input) {  // else it is not of the log
      made.error().file = kept;
      if (kept.empty()) made.error().line = 0;
    }
    return made.error();
  }
  made->trace.device = machine_device(true);
  return store(std::move(*made), output, session,
               fmt::format("{}, {}", machine_versions(true), session.today));
}

/// Copies the logs to where a person wants to keep them.
Status keep(const std::vector<ProcessLog>& logs, const std::string& file) {
  for (const ProcessLog& log : logs) {
    std::error_code error;
    fs::copy_file(log.path, &log == &logs.front() ? file : with_process(file, log.process),
                  fs::copy_options::overwrite_existing, error);
    if (error) return Error{ErrorCode::io, "cannot be written: " + error.message(), file};
  }
  return Ok{};
}

}  // namespace

Status convert_logs(const std::string& folder, pid_t own, const std::string& command,
                    const std::string& output, const ActivityOptions& options,
                    const std::string& log_file, const Session& session) {
  const std::string name = fs::path(command).filename().string();
  const auto logs = logs_with_work(folder, own);
  if (!logs) return logs.error();
  if (logs->empty())
    return Error{
        ErrorCode::device,
        fmt::format("{} ran nothing on a GPU that was seen: there is nothing to trace", command)};
  if (!log_file.empty())
    if (Status status = keep(*logs, log_file); !status) return status;
  const auto convert_one = [&](const ProcessLog& log) {
    const bool plain = &log == &logs->front();
    const auto named = [&](const std::string& file) {
      return plain || file.empty() ? file : with_process(file, log.process);
    };
    return convert(log, name, named(output), options, named(log_file), session);
  };
  if (Status status = convert_one(logs->front()); !status) return status;
  if (output == "-" && logs->size() > 1) {
    session.console.note(
        fmt::format("{} processes used a GPU: standard output takes the trace of one, process {} "
                    "(would be -o FILE for all)",
                    logs->size(), logs->front().process));
    return Ok{};
  }
  for (std::size_t i = 1; i < logs->size(); ++i)
    if (Status status = convert_one((*logs)[i]); !status)
      session.console.note(
          fmt::format("process {} has no trace: {}", (*logs)[i].process, status.error().message));
  if (logs->size() > 1)
    session.console.note(
        fmt::format("{} processes used a GPU: {} is of process {}, and each other "
                    "trace has its process in its name",
                    logs->size(), output, logs->front().process));
  return Ok{};
}

void add_window_options(cli::Command& command, ActivityOptions& options) {
  command.add_option("--window", options.window,
                     "of a CUDA program: what one training step is: range:NAME, an NVTX range; "
                     "pattern, kernels that repeat themselves; whole, all of the run (default: "
                     "pattern, else whole)");
  command
      .add_option("--range-depth", options.range_depth,
                  "of a CUDA program: NVTX ranges deeper than that make no ops of their own "
                  "(default: 0, the innermost ones do)")
      ->within(0, 64);
}

Result<std::string> temporary_folder() {
  std::error_code problem;
  const fs::path folder = fs::temp_directory_path(problem);
  if (problem)
    return Error{ErrorCode::io,
                 fmt::format("no folder for temporary files: {} (would be one that TMPDIR names)",
                             problem.message())};
  return folder.string();
}

bool is_activity_log(const std::string& path) {
  bool is_one = false;
  // Ends with the first line.
  (void)for_each_line(path, [&](std::string_view text, std::int64_t) -> Status {
    is_one = text.find("\"superneurons-activities\"") != std::string_view::npos;
    return Error{};
  });
  return is_one;
}

Status convert_log(const std::string& log, const std::string& output,
                   const ActivityOptions& options, const Session& session) {
  const auto folder = temporary_folder();
  if (!folder) return folder.error();
  auto made = trace_from_activities({.path = log, .folder = *folder}, "", options);
  if (!made) return made.error();
  return store(std::move(*made), output, session, session.today);
}

}  // namespace superneurons
