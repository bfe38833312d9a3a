#include "cli/trace_program.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "ir/files.h"
#include "ir/trace_io.h"
#include "tracer/from_activities.h"

namespace superneurons {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLibrary = "libsuperneurons_cupti.so";

/// A folder for the logs, which goes with its content.
struct LogFolder {
  fs::path path;
  explicit LogFolder(fs::path folder) : path(std::move(folder)) {}
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;
  ~LogFolder() {
    std::error_code none;
    fs::remove_all(path, none);
  }
  /// By time of their end: that of the main process is mostly the last.
  std::vector<fs::path> logs() const {
    std::vector<fs::path> found;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(path, none))
      if (entry.path().filename().string().rfind("log.", 0) == 0 &&
          entry.path().extension() != ".tmp")
        found.push_back(entry.path());
    std::sort(found.begin(), found.end());
    return found;
  }
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

/// T.jsonl.gz of process 17 → T-17.jsonl.gz.
std::string with_process(const std::string& output, const std::string& process) {
  const auto name = output.find_last_of('/') + 1;  // 0 if there is none
  const auto dot = output.find('.', name);
  const auto stem = dot == std::string::npos || dot == name ? output.size() : dot;
  return output.substr(0, stem) + "-" + process + output.substr(stem);
}

Status convert(const fs::path& log, const std::string& name, const std::string& output,
               const Session& session) {
  const auto activities = read_activity_log(log.string());
  if (!activities) return activities.error();
  if (activities->device.empty()) return Ok{};
  auto trace = trace_from_activities(*activities, name);
  if (!trace) return trace.error();
  trace->origin =
      fmt::format("{} ({}, {})", session.made_by, machine_versions(true), session.today);
  trace->device = machine_device(true);
  if (Status status = write_trace(*trace, output); !status) return status;
  session.console.note(fmt::format("{}: {} kernels and copies in {}, {} dropped records", output,
                                   trace->ops.size(), format_time(trace->step_ns_traced),
                                   trace->dropped_records));
  return Ok{};
}

Status convert_all(const LogFolder& folder, const Ended& ended,
                   const std::vector<std::string>& command, const std::string& output,
                   const Session& session) {
  const std::string name = fs::path(command.front()).filename().string();
  const std::vector<fs::path> logs = folder.logs();
  if (logs.empty())
    return Error{ErrorCode::device,
                 fmt::format("{} used no CUDA, or ended without running its exit handlers: there "
                             "is nothing to trace",
                             command.front())};
  const std::string own = "log." + std::to_string(ended.process);
  const bool main_used_cuda =
      std::any_of(logs.begin(), logs.end(), [&](const auto& log) { return log.filename() == own; });
  bool first = true;
  for (const fs::path& log : logs) {
    const bool plain = main_used_cuda ? log.filename() == own : std::exchange(first, false);
    const std::string process = log.extension().string().substr(1);
    const std::string file = plain ? output : with_process(output, process);
    if (Status status = convert(log, name, file, session); !status) return status;
  }
  return Ok{};
}

}  // namespace

/// Beside the program (a build folder), else in the lib folder of where it was installed.
Result<std::string> find_library() {
  std::error_code none;
  const fs::path folder = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const char* place : {".", "../lib", "../lib64", "../lib/x86_64-linux-gnu"})
    if (const fs::path file = folder / place / kLibrary; fs::exists(file, none))
      return file.lexically_normal().string();
  return Error{ErrorCode::device,
               fmt::format("{} is neither beside this program nor in ../lib: it is built where "
                           "CUDA and CUPTI are found",
                           kLibrary)};
}

std::vector<std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& added) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const bool replaced = std::any_of(added.begin(), added.end(), [&](const auto& variable) {
      return text.substr(0, text.find('=')) == variable.first;
    });
    if (!replaced) all.emplace_back(text);
  }
  for (const auto& variable : added) all.push_back(variable.first + "=" + variable.second);
  return all;
}

Result<Ended> run_command(std::vector<std::string> command, std::vector<std::string> environment) {
  Ended ended;
  // We ignore SIGPIPE; the command shall not.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t pipe;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &pipe);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int failed = posix_spawnp(&ended.process, command.front().c_str(), nullptr, &attributes,
                                  pointers(command).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  if (failed != 0)
    return Error{ErrorCode::bad_usage,
                 fmt::format("{} cannot be started ({})", command.front(), std::strerror(failed))};
  int status = 0;
  while (waitpid(ended.process, &status, 0) < 0)
    if (errno != EINTR) return Error{ErrorCode::io, fmt::format("{} was lost", command.front())};
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

Status trace_program(const std::vector<std::string>& command, const std::string& output,
                     Session& session) {
  const auto library = find_library();
  if (!library) return library.error();
  std::string pattern = (fs::temp_directory_path() / "superneurons-XXXXXX").string();
  if (!mkdtemp(pattern.data()))
    return Error{ErrorCode::io, fmt::format("no temporary folder ({})", std::strerror(errno))};
  const LogFolder folder{pattern};
  const auto ended = run_command(
      command, environment_with({{"CUDA_INJECTION64_PATH", *library},
                                 {"SUPERNEURONS_ACTIVITY_LOG", (folder.path / "log").string()}}));
  if (!ended) return ended.error();
  session.exit_code = ended->exit_code;
  Status status = convert_all(folder, *ended, command, output, session);
  if (!status && ended->exit_code != 0) {
    session.console.error(status.error());  // the command's own failure is the answer
    return Ok{};
  }
  return status;
}

}  // namespace superneurons
