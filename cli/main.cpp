// The program: wires modules to commands. Only here are signals and the date read.
#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <new>

#include "cli/session.h"
#include "ir/files.h"
#include "tracer/record.h"

namespace {

using namespace superneurons;

std::atomic<bool> stop_requested{false};

extern "C" void on_interrupt(int signal) {
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
    "input, 130 interrupted. Sizes are written 12GiB, 800MiB, 60% (of the liveness peak), floor\n"
    "(the least that works).";

void add_commands(CLI::App& app, Session& session) {
  add_show_command(app, session);
  add_compare_command(app, session);
  add_plan_command(app, session);
  add_check_command(app, session);
  add_simulate_command(app, session);
  add_replay_command(app, session);
  add_fit_command(app, session);
  add_build_command(app, session);
  add_trace_command(app, session);
  add_calibrate_command(app, session);
  add_list_commands(app, session);
}

Error usage(const std::string& message) { return {ErrorCode::bad_usage, message}; }

std::string did_you_mean(const std::string& wanted, const std::vector<std::string>& names) {
  const std::string near = nearest_name(wanted, names);
  return near.empty() ? "" : "did you mean " + near + "? ";
}

/// An Error for a first word that is no command.
Status known_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return Ok{};
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), argv[1]) != names.end()) return Ok{};
  return usage(fmt::format("unknown command '{}' ({}superneurons --help lists them)", argv[1],
                           did_you_mean(argv[1], names)));
}

/// The first word that looks like an option of the command and is none, or "". Its value, which
/// CLI11 complains of, is the smaller problem, as is an option that lacks because of it.
std::string unknown_option(const CLI::App& command, int argc, char** argv) {
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool option = word.size() > 1 && word[0] == '-' &&
                        word.find_first_of("0123456789.") != 1;  // a negative number is a value
    const std::string name(word.substr(0, word.find('=')));
    if (option && command.get_option_no_throw(name) == nullptr) return name;
  }
  return "";
}

/// What CLI11 found wrong, as one line in the shape of all other errors.
Error usage_error(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const auto commands = app.get_subcommands();
  const std::string name = commands.empty() ? "" : commands.front()->get_name() + " ";
  std::string message = error.what();
  std::string hint;
  std::string extra;
  if (!commands.empty()) extra = unknown_option(*commands.front(), argc, argv);
  if (extra.empty() && error.get_exit_code() == static_cast<int>(CLI::ExitCodes::ExtrasError)) {
    // "The following argument was not expected: this one"
    extra = message.substr(message.rfind(": ") + 2);
    extra = extra.substr(0, extra.find_first_of(" ="));
  }
  if (!extra.empty() && !commands.empty()) {
    std::vector<std::string> options;
    for (const CLI::Option* option : commands.front()->get_options())
      options.push_back("--" + option->get_single_name());
    message = fmt::format("{}does not take '{}'", name, extra);
    hint = did_you_mean(extra, options);
  }
  return usage(fmt::format("{} ({}superneurons {}--help tells more)", message, hint, name));
}

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
  CLI::App app{
      "superneurons: capture a training step, compare memory policies on it, replay the best plan"};
  app.name("superneurons");
  app.set_version_flag("--version", "superneurons " SUPERNEURONS_VERSION);
  app.require_subcommand(1);
  app.footer(kNextSteps);
  add_commands(app, session);
  if (argc < 2) {
    session.console.error(usage("which command? (superneurons --help lists them)"));
    return 2;
  }
  if (argc == 2 && std::string_view(argv[1]) == "help") {
    session.console.print(app.help());
    return 0;
  }
  if (Status known = known_command(app, argc, argv); !known) {
    session.console.error(known.error());
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    session.console.error(usage_error(app, error, argc, argv));
    return 2;
  }
  return session.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  std::signal(SIGPIPE, SIG_IGN);
  Console console;
  Session session{.stop = stop_requested,
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
