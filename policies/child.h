// Running a command with text in and text out, with limits, and without ever dying of it.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

#include "ir/result.h"

namespace superneurons {

struct ChildLimits {
  std::chrono::milliseconds timeout{60'000};
  std::size_t output = 256U << 20;  // bytes of standard output
  const std::atomic<bool>* stop = nullptr;
};

struct ChildOutcome {
  enum class End { exited, signalled, timed_out, too_much_output, stopped };
  End end = End::exited;
  int status = 0;  // exit status or signal
  std::string output;
  std::string last_error;  // last line of its standard error that is not empty
};

/// /bin/sh runs `command` in a process group of its own, which is killed when a limit is reached or
/// the shell is done. A command that does not read its input is no failure. Error io if it cannot
/// be started.
Result<ChildOutcome> run_child(const std::string& command, std::string_view input,
                               const ChildLimits& limits);

}  // namespace superneurons
