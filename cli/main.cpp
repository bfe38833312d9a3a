// The program: wires modules to commands. Only here are signals and the date read.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <new>

#include "cli/session.h"
#include "ir/files.h"
#include "tracer/record.h"

namespace {

using namespace superneurons;

std::atomic<bool> stop_requested{false};
std::atomic<bool> ends_at_once{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a handler may touch it

extern "C" void on_interrupt(int signal) {
  if (ends_at_once.load()) {
    constexpr std::string_view text = "superneurons: interrupted\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    ::_exit(130);
  }
  stop_requested.store(true);
  std::signal(signal, SIG_DFL);  // a second Ctrl-C ends the program at once
}

/// The call as text; `whole`: with the output's name, which says nothing of how a file was made.
std::string joined(int argc, char** argv, bool whole) {
  std::string text = "superneurons";
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") whole = true;  // from here on another program's words
    if (!whole && (word == "-o" || word == "--output")) ++i;
    else if (whole || !word.starts_with("--output=")) text.append(" ").append(word);
  }
  return text;
}

constexpr const char* kNextSteps =
    "What to do next:\n"
    "  superneurons compare traces/alexnet-b128.jsonl.gz      which policy wins at which budget\n"
    "  superneurons build resnet50 --batch 64 -o T.jsonl.gz   a trace of your own, without a run\n"
    "  superneurons trace small_cnn --on host -o T.jsonl.gz   a trace of your own, of a real run\n"
    "  superneurons replay T.jsonl.gz --policy liveness       the plan for real; on a small "
    "machine\n"
    "                                                         with --scale-bytes 1/1024\n"
    "  superneurons COMMAND --help                            options of a command, an example\n"
    "Exit codes: 0 good, 1 the answer is no (does not fit, not equal, unlawful), 2 bad usage or\n"
    "input, 130 interrupted; of trace -- COMMAND the command's own, 126 or 127 where it cannot be\n"
    "started. Sizes are written 12GiB, 800MiB, 60% (of the liveness peak), floor (the least that\n"
    "works).";

void add_commands(cli::App& app, Session& session) {
  add_show_command(app, session);
  add_compare_command(app, session);
  add_plan_command(app, session);
  add_check_command(app, session);
  add_simulate_command(app, session);
  add_explain_command(app, session);
  add_replay_command(app, session);
  add_fit_command(app, session);
  add_convert_command(app, session);
  add_build_command(app, session);
  add_trace_command(app, session);
  add_calibrate_command(app, session);
  add_list_commands(app, session);
}

Error usage(const std::string& message) { return {ErrorCode::bad_usage, message}; }

int run(int argc, char** argv, Session& session) {
  for (int i = 2; i < argc && std::string_view(argv[1]) == "trace"; ++i) {
    if (std::string_view(argv[i]) != "--") continue;
    session.program.assign(argv + i + 1, argv + argc);
    if (session.program.empty()) {
      session.console.error(usage("no command follows -- (would be trace -o FILE -- COMMAND ...)"));
      return 2;
    }
    argc = i;
  }
  cli::App app(
      "superneurons",
      "superneurons: capture a training step, compare memory policies on it, replay the best plan",
      "superneurons " SUPERNEURONS_VERSION, kNextSteps);
  add_commands(app, session);
  if (argc == 2 && std::string_view(argv[1]) == "help") {
    session.console.print(app.help());
    return 0;
  }
  const Result<std::string> answer = app.parse(argc, argv);
  if (!answer) {
    session.console.error(answer.error());
    return 2;
  }
  session.console.print(*answer);
  return session.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  std::signal(SIGPIPE, SIG_IGN);
  Console console;
  Session session{.stop = stop_requested,
                  .ends_at_once = ends_at_once,
                  .console = console,
                  .command_line = joined(argc, argv, true),
                  .made_by = joined(argc, argv, false),
                  .today = today()};
  int code = 2;
  try {
    code = run(argc, argv, session);
  } catch (const std::bad_alloc&) {
    console.error({ErrorCode::device, "this machine has not enough memory for that"});
  }
  if (const Status written = console.finish(); !written) {
    if (!console.reader_gone()) console.error(written.error());
    code = 2;
  }
  return code;
}
