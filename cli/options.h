// Commands and their options. CLI11 does the work, and only in options.cpp: it takes the compiler
// longer than everything else in a command.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ir/result.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace superneurons::cli {

/// One option of a command. Every function returns the option itself, so that they chain.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option* required();
  /// The help text shows the value that the variable has now, and results name it.
  Option* capture_default_str();
  Option* excludes(Option* other);
  Option* needs(Option* other);
  /// Values that are none of these are refused.
  Option* one_of(std::vector<std::string> names);
  /// Values outside [least, most] are refused.
  Option* within(std::int64_t least, std::int64_t most);
  Option* within_reals(double least, double most);
  /// What `fault` has something to say of is refused; `what` a value is, for the help text.
  Option* check(std::function<std::string(const std::string&)> fault, const std::string& what);
  /// Names a file to write.
  Option* output();

 private:
  CLI::Option* option_;
};

/// What one option was given, as words.
struct GivenOption {
  std::string name;          // "--json", "trace"
  std::string single_name;   // "json", "trace"
  std::string default_text;  // "": none was captured
  std::vector<std::string> values;
  bool output = false;  // names a file to write

  /// The values with commas, or the default.
  std::string text() const;
};

/// A subcommand. `names` as in "-o,--output", or a word for a positional; the variable keeps its
/// value where the option is not given, and must live as long as the command.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  Option* add_option(const std::string& names, std::string& value, const std::string& summary);
  Option* add_option(const std::string& names, std::vector<std::string>& values,
                     const std::string& summary);
  Option* add_option(const std::string& names, int& value, const std::string& summary);
  Option* add_option(const std::string& names, std::int64_t& value, const std::string& summary);
  Option* add_option(const std::string& names, std::uint32_t& value, const std::string& summary);
  Option* add_option(const std::string& names, std::uint64_t& value, const std::string& summary);
  Option* add_option(const std::string& names, double& value, const std::string& summary);
  Option* add_flag(const std::string& names, bool& value, const std::string& summary);

  /// All options but --help.
  std::vector<GivenOption> given() const;

 private:
  Option* keep(CLI::Option* option);

  CLI::App* app_;
  std::vector<std::unique_ptr<Option>> options_;
};

/// The program's commands.
class App {
 public:
  /// `version`: what --version prints. `footer` closes the help text.
  App(const std::string& name, const std::string& summary, const std::string& version,
      const std::string& footer);
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  /// `run` is called by parse() where the command was given, its options read.
  Command* add_command(const std::string& name, const std::string& summary,
                       const std::string& footer, std::function<void(const Command&)> run);
  std::string help() const;
  /// Runs the command that is given. What --help and --version print, or "". Error bad_usage, one
  /// line, for what is no command, or not as its options want it.
  Result<std::string> parse(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Command>> commands_;
};

}  // namespace superneurons::cli
