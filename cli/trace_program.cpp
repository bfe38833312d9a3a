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

#include "cli/activity_traces.h"

namespace superneurons {
namespace {

namespace fs = std::filesystem;

constexpr int kCannotBeStarted = 126;  // as shells say it
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
};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (std::string& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

/// The file that is run by this word; "" where there is none. `found`: at least a file is.
std::string executable(const std::string& word, bool& found) {
  found = false;
  for (const std::string& place : places_of(word)) {
    std::error_code none;
    if (word.empty() || !fs::exists(place, none)) continue;
    found = true;
    if (fs::is_regular_file(place, none) && ::access(place.c_str(), X_OK) == 0) return place;
  }
  return "";
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

std::vector<std::string> places_of(const std::string& word) {
  if (word.find('/') != std::string::npos) return {word};
  const char* variable = std::getenv("PATH");
  const std::string path = variable ? variable : "/bin:/usr/bin";
  std::vector<std::string> places;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find(':', begin), path.size());
    places.push_back((fs::path(path.substr(begin, end - begin)) / word).string());
    begin = end + 1;
  }
  return places;
}

int cannot_start(const std::string& word, Console& console) {
  bool found = false;
  if (!executable(word, found).empty()) return 0;
  console.error(
      {ErrorCode::bad_usage,
       found ? fmt::format("{}: cannot be started (would be an executable file)", word)
             : fmt::format("{}: not found (would be a program on the PATH, or its path)", word)});
  return found ? kCannotBeStarted : 127;
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
  const std::string name = command.front();
  const auto spawn = [&] {
    return posix_spawnp(&ended.process, command.front().c_str(), nullptr, &attributes,
                        pointers(command).data(), pointers(environment).data());
  };
  int failed = spawn();
  if (failed == ENOEXEC) {  // a script without a first line that says whose: as a shell does
    bool found = false;
    command.front() = executable(command.front(), found);
    command.insert(command.begin(), "/bin/sh");
    failed = spawn();
  }
  posix_spawnattr_destroy(&attributes);
  if (failed != 0)
    return Error{ErrorCode::bad_usage,
                 fmt::format("{} cannot be started ({})", name, std::strerror(failed))};
  int status = 0;
  while (waitpid(ended.process, &status, 0) < 0)
    if (errno != EINTR) return Error{ErrorCode::io, fmt::format("{} was lost", name)};
  ended.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

Status not_run(const Error& error, Session& session) {
  if (error.code != ErrorCode::bad_usage) return error;
  session.console.error(error);
  session.exit_code = kCannotBeStarted;
  return Ok{};
}

Status trace_program(const std::vector<std::string>& command, const std::string& output,
                     const ActivityOptions& options, const std::string& log_file,
                     Session& session) {
  if (Status status = check_window(options.window); !status) return status;
  const auto library = find_library();
  if (!library) return library.error();
  const auto temporary = temporary_folder();
  if (!temporary) return temporary.error();
  std::string pattern = (fs::path(*temporary) / "superneurons-XXXXXX").string();
  if (!mkdtemp(pattern.data()))
    return Error{ErrorCode::io, fmt::format("no temporary folder ({})", std::strerror(errno))};
  const LogFolder folder{pattern};
  const auto ended = run_command(
      command, environment_with({{"CUDA_INJECTION64_PATH", *library},
                                 {"NVTX_INJECTION64_PATH", *library},
                                 {"SUPERNEURONS_ACTIVITY_LOG", (folder.path / "log").string()}}));
  if (!ended) return not_run(ended.error(), session);
  session.exit_code = ended->exit_code;
  Status status = convert_logs(folder.path.string(), ended->process, command.front(), output,
                               options, log_file, session);
  if (!status && ended->exit_code != 0) {
    session.console.error(status.error());  // the command's own failure is the answer
    return Ok{};
  }
  return status;
}

}  // namespace superneurons
