// The program: wires modules to commands. Only here are signals and the clock read.
#include <atomic>
#include <csignal>
#include <ctime>

#include "cli/session.h"

namespace {

std::atomic<bool> stop_requested{false};

extern "C" void on_interrupt(int signal) {
  stop_requested.store(true);
  std::signal(signal, SIG_DFL);  // a second Ctrl-C ends the program at once
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", std::gmtime(&now));
  return text;
}

std::string joined(int argc, char** argv) {
  std::string text = "superneurons";
  for (int i = 1; i < argc; ++i) text += std::string(" ") + argv[i];
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace superneurons;
  std::signal(SIGINT, on_interrupt);
  std::signal(SIGTERM, on_interrupt);
  std::signal(SIGPIPE, SIG_IGN);
  Session session{.stop = stop_requested, .command_line = joined(argc, argv), .today = today()};

  CLI::App app{
      "superneurons: capture a training step, compare memory policies on it, replay the best plan"};
  app.set_version_flag("--version", "superneurons " SUPERNEURONS_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  add_list_commands(app, session);
  add_trace_command(app, session);
  add_build_command(app, session);
  add_show_command(app, session);
  add_check_command(app, session);
  add_plan_command(app, session);
  add_simulate_command(app, session);
  add_compare_command(app, session);
  add_replay_command(app, session);
  add_calibrate_command(app, session);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return session.exit_code;
}
