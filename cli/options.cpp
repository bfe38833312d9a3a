#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>
#include <string_view>

#include "ir/files.h"

namespace superneurons::cli {
namespace {

constexpr const char* kOutputType = "FILE";

Error usage(const std::string& message) { return {ErrorCode::bad_usage, message}; }

std::string did_you_mean(const std::string& wanted, const std::vector<std::string>& names) {
  const std::string near = nearest_name(wanted, names);
  return near.empty() ? "" : "did you mean " + near + "? ";
}

/// An Error for a first word that is no command.
Status known_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2) return usage("which command? (superneurons --help lists them)");
  if (argv[1][0] == '-') return Ok{};
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

}  // namespace

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::capture_default_str() {
  option_->capture_default_str();
  return this;
}

Option* Option::excludes(Option* other) {
  option_->excludes(other->option_);
  return this;
}

Option* Option::needs(Option* other) {
  option_->needs(other->option_);
  return this;
}

Option* Option::one_of(std::vector<std::string> names) {
  option_->check(CLI::IsMember(std::move(names)));
  return this;
}

Option* Option::within(std::int64_t least, std::int64_t most) {
  const auto fault = [least, most](const std::string& text) {
    const bool real = text.find_first_not_of("+-.eE0123456789") == std::string::npos &&
                      text.find_first_of(".eE") != std::string::npos;
    return real ? fmt::format("'{}' is not a whole number from {} to {}", text, least, most) : "";
  };
  option_->check(CLI::Validator(fault, "", "whole"));
  option_->check(CLI::Range(least, most));
  return this;
}

Option* Option::within_reals(double least, double most) {
  option_->check(CLI::Range(least, most));
  return this;
}

Option* Option::check(std::function<std::string(const std::string&)> fault,
                      const std::string& what) {
  option_->check(CLI::Validator(std::move(fault), "", what));
  return this;
}

Option* Option::output() {
  option_->type_name(kOutputType);
  return this;
}

std::string GivenOption::text() const {
  return values.empty() ? default_text : fmt::format("{}", fmt::join(values, ","));
}

Option* Command::keep(CLI::Option* option) {
  options_.push_back(std::make_unique<Option>(option));
  return options_.back().get();
}

Option* Command::add_option(const std::string& names, std::string& value,
                            const std::string& summary) {
  return keep(app_->add_option(names, value, summary));
}

Option* Command::add_option(const std::string& names, std::vector<std::string>& values,
                            const std::string& summary) {
  return keep(app_->add_option(names, values, summary));
}

Option* Command::add_option(const std::string& names, int& value, const std::string& summary) {
  return keep(app_->add_option(names, value, summary));
}

Option* Command::add_option(const std::string& names, std::int64_t& value,
                            const std::string& summary) {
  return keep(app_->add_option(names, value, summary));
}

Option* Command::add_option(const std::string& names, std::uint32_t& value,
                            const std::string& summary) {
  return keep(app_->add_option(names, value, summary));
}

Option* Command::add_option(const std::string& names, std::uint64_t& value,
                            const std::string& summary) {
  return keep(app_->add_option(names, value, summary));
}

Option* Command::add_option(const std::string& names, double& value, const std::string& summary) {
  return keep(app_->add_option(names, value, summary));
}

Option* Command::add_flag(const std::string& names, bool& value, const std::string& summary) {
  return keep(app_->add_flag(names, value, summary));
}

std::vector<GivenOption> Command::given() const {
  std::vector<GivenOption> given;
  for (const CLI::Option* option : app_->get_options())
    if (option->get_name() != "--help")
      given.push_back({.name = option->get_name(),
                       .single_name = option->get_single_name(),
                       .default_text = option->get_default_str(),
                       .values = option->results(),
                       .output = option->get_type_name() == kOutputType});
  return given;
}

App::App(const std::string& name, const std::string& summary, const std::string& version,
         const std::string& footer)
    : app_(std::make_unique<CLI::App>(summary)) {
  app_->name(name);
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->footer(footer);
}

App::~App() = default;

Command* App::add_command(const std::string& name, const std::string& summary,
                          const std::string& footer, std::function<void(const Command&)> run) {
  CLI::App* app = app_->add_subcommand(name, summary);
  app->footer(footer);
  commands_.push_back(std::make_unique<Command>(app));
  Command* command = commands_.back().get();
  app->callback([command, run = std::move(run)] { run(*command); });
  return command;
}

std::string App::help() const { return app_->help(); }

Result<std::string> App::parse(int argc, char** argv) {
  if (Status known = known_command(*app_, argc, argv); !known) return known.error();
  std::ostringstream asked;
  try {
    app_->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return usage_error(*app_, error, argc, argv);
    app_->exit(error, asked, asked);
  }
  return asked.str();
}

}  // namespace superneurons::cli
