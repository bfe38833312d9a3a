#include "policies/child.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

extern char** environ;

namespace superneurons {
namespace {

constexpr std::size_t kErrorKept = 64 << 10;

class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { close(); }
  void reset(int fd) {
    close();
    fd_ = fd;
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Pipe {
  File read, write;
  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read.reset(ends[0]);
    write.reset(ends[1]);
    return true;
  }
};

/// Blocks SIGPIPE in this thread, so that writing to a command that is gone is only EPIPE.
class WithoutSigpipe {
 public:
  WithoutSigpipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;
  ~WithoutSigpipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    const timespec now{};
    while (sigtimedwait(&pipe_, nullptr, &now) == SIGPIPE) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  const sigset_t& before() const { return before_; }

 private:
  sigset_t pipe_{}, before_{};
};

/// Its own process group, the signals of the caller but SIGPIPE, and our pipes. 0 or an errno.
int spawn(const std::string& command, const sigset_t& mask, const Pipe& in, const Pipe& out,
          const Pipe& err, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t defaults;  // a caller that ignores SIGPIPE must not make the command's pipelines hang
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setsigmask(&attributes, &mask);
  std::string shell = "sh", flag = "-c", text = command;
  const std::array<char*, 4> arguments{shell.data(), flag.data(), text.data(), nullptr};
  const int error = posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

/// Whether the shell has exited; it is not reaped, so that its process group keeps its number.
bool has_exited(pid_t pid) {
  siginfo_t info{};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return errno == ECHILD;  // a caller that ignores SIGCHLD has no children to wait for
  return info.si_pid == pid;
}

/// Moves bytes until the shell has exited or a limit is reached. What it leaves running in the
/// background may hold the outputs open and is not waited for.
class Pump {
 public:
  Pump(pid_t pid, File& in, File& out, File& err, std::string_view input, const ChildLimits& limits)
      : pid_(pid),
        in_(in),
        out_(out),
        err_(err),
        input_(input),
        limits_(limits),
        deadline_(std::chrono::steady_clock::now() + limits.timeout) {
    for (const File* file : {&in, &out, &err})
      fcntl(file->get(), F_SETFL, fcntl(file->get(), F_GETFL) | O_NONBLOCK);
  }

  ChildOutcome::End run() {
    using End = ChildOutcome::End;
    while (true) {
      const bool last = has_exited(pid_);  // all it wrote is in the pipes
      if (limits_.stop != nullptr && limits_.stop->load()) return End::stopped;
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline_ - std::chrono::steady_clock::now());
      if (left.count() <= 0) return End::timed_out;
      std::array<pollfd, 3> files{pollfd{in_.get(), POLLOUT, 0}, pollfd{out_.get(), POLLIN, 0},
                                  pollfd{err_.get(), POLLIN, 0}};
      // Wakes up now and then to look at the stop token and the shell, and soon once it has closed
      // its outputs, as it does on exit.
      const long longest = out_.get() >= 0 || err_.get() >= 0 ? 20 : 1;
      poll(files.data(), files.size(),
           last ? 0 : static_cast<int>(std::min<long>(left.count() + 1, longest)));
      if (files[0].revents != 0 && !last) feed();
      if (files[1].revents != 0) drain(out_, output, limits_.output + 1, last);
      if (files[2].revents != 0) {
        drain(err_, errors, errors.size() + kErrorKept, last);
        if (errors.size() > kErrorKept) errors.erase(0, errors.size() - kErrorKept);
      }
      if (output.size() > limits_.output) return End::too_much_output;
      if (last) return End::exited;
    }
  }

  std::string output, errors;

 private:
  void feed() {
    const ssize_t count = write(in_.get(), input_.data(), input_.size());
    if (count > 0) input_.remove_prefix(static_cast<std::size_t>(count));
    const bool later = count < 0 && (errno == EAGAIN || errno == EINTR);
    if (input_.empty() || (count < 0 && !later)) in_.close();
  }

  /// Keeps at most `most` bytes and drops the rest. With `all`, until the pipe is empty, but no
  /// more than a pipe may hold: somebody in the background may still be writing.
  static void drain(File& file, std::string& kept, std::size_t most, bool all) {
    std::array<char, 65536> buffer;
    for (int times = all ? 32 : 1; times > 0; --times) {
      const ssize_t count = read(file.get(), buffer.data(), buffer.size());
      if (count > 0)
        kept.append(buffer.data(),
                    std::min(static_cast<std::size_t>(count), most - std::min(most, kept.size())));
      if (count > 0 || (count < 0 && errno == EINTR)) continue;
      if (count == 0 || errno != EAGAIN) file.close();
      return;
    }
  }

  pid_t pid_;
  File &in_, &out_, &err_;
  std::string_view input_;
  const ChildLimits& limits_;
  std::chrono::steady_clock::time_point deadline_;
};

}  // namespace

Result<ChildOutcome> run_child(const std::string& command, std::string_view input,
                               const ChildLimits& limits) {
  const WithoutSigpipe guard;
  Pipe in, out, err;
  pid_t pid = 0;
  const auto failure = [](int error) {
    return Error{ErrorCode::io, fmt::format("cannot start /bin/sh: {}", std::strerror(error))};
  };
  if (!in.open() || !out.open() || !err.open()) return failure(errno);
  if (const int error = spawn(command, guard.before(), in, out, err, pid)) return failure(error);
  in.read.close();
  out.write.close();
  err.write.close();
  Pump pump(pid, in.write, out.read, err.read, input, limits);
  ChildOutcome outcome;
  outcome.end = pump.run();
  in.write.close();
  int status = 0;
  kill(-pid, SIGKILL);  // the whole group: what the shell started may live on
  waitpid(pid, &status, 0);
  outcome.output = std::move(pump.output);
  const std::size_t end = pump.errors.find_last_not_of("\r\n ") + 1;
  const std::size_t begin = end == 0 ? 0 : pump.errors.rfind('\n', end - 1) + 1;
  outcome.last_error = pump.errors.substr(begin, end - begin);
  if (outcome.end == ChildOutcome::End::exited && WIFSIGNALED(status)) {
    outcome.end = ChildOutcome::End::signalled;
    outcome.status = WTERMSIG(status);
  } else if (outcome.end == ChildOutcome::End::exited) {
    outcome.status = WEXITSTATUS(status);
  }
  return outcome;
}

}  // namespace superneurons
