// What happens around a command's work: its options noted, its outputs tried, its errors printed.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "cli/session.h"
#include "ir/files.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

constexpr const char* kOutputType = "FILE";

bool is_output(const CLI::Option& option) { return option.get_type_name() == kOutputType; }

std::string value_of(const CLI::Option& option) {
  if (option.count() == 0) return option.get_default_str();
  return CLI::detail::join(option.results(), ",");
}

/// A failure that would otherwise only show after the work.
Status can_be_written(const std::string& path) {
  if (path.empty() || path == "-") return Ok{};
  const auto refuse = [&path](const std::string& why) {
    return Error{ErrorCode::io, fmt::format("cannot be written: {}", why), path};
  };
  struct stat existing {};
  if (::stat(path.c_str(), &existing) == 0 && S_ISDIR(existing.st_mode))
    return refuse("it is a folder");
  std::filesystem::path folder = std::filesystem::path(followed(path)).parent_path();
  if (folder.empty()) folder = ".";
  if (S_ISREG(existing.st_mode) || existing.st_mode == 0) {
    if (::access(folder.c_str(), W_OK) != 0) return refuse(std::strerror(errno));
  } else if (::access(path.c_str(), W_OK) != 0) {
    return refuse(std::strerror(errno));
  }
  return Ok{};
}

/// A bare number is a count of bytes, which is seldom what was meant.
void note_missing_units(const CLI::Option& option, Console& console) {
  for (const std::string& value : option.results())
    if (!value.empty() && value.find_first_not_of("0123456789") == std::string::npos)
      console.note(
          fmt::format("{} {} has no unit: taken as {} bytes", option.get_name(), value, value));
}

/// Files that an option names and that exist: whatever is no output is read.
std::vector<std::string> files_read(const CLI::App& command) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& value : option->results())
      if (!is_output(*option) && std::filesystem::is_regular_file(value, ignored))
        files.push_back(value);
  return files;
}

/// An output must destroy neither what is read nor another output.
Status check_outputs(const CLI::App& command) {
  std::vector<std::string> taken = files_read(command);
  std::error_code ignored;
  for (const CLI::Option* option : command.get_options()) {
    if (!is_output(*option) || option->count() == 0) continue;
    const std::string path = value_of(*option);
    for (const std::string& other : taken) {
      if (path != other && !std::filesystem::equivalent(path, other, ignored)) continue;
      return Error{
          ErrorCode::bad_usage,
          fmt::format("{} would overwrite another file of this command", option->get_name()), path};
    }
    if (!path.empty()) taken.push_back(path);
  }
  return Ok{};
}

Status check_budgets(const CLI::Option& option) {
  if (option.get_name().find("budget") == std::string::npos) return Ok{};
  for (const std::string& value : option.results())
    if (Status status = check_budget(value); !status)
      return Error{ErrorCode::bad_usage,
                   fmt::format("{}: {}", option.get_name(), status.error().message)};
  return Ok{};
}

Status prepare(const CLI::App& command, Session& session) {
  if (Status status = check_outputs(command); !status) return status;
  session.options = {{"command", session.command_line}};
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_name() == "--help") continue;
    const std::string value = value_of(*option);
    if (!value.empty()) session.options[option->get_single_name()] = value;
    if (Status status = check_budgets(*option); !status) return status;
    if (option->get_name().find("budget") != std::string::npos)
      note_missing_units(*option, session.console);
    if (!is_output(*option)) continue;
    if (value == "-" && option->check_lname("json")) session.console.mute();
    if (Status status = can_be_written(value); !status) return status;
  }
  return Ok{};
}

}  // namespace

int exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::does_not_fit:
    case ErrorCode::not_equal:
    case ErrorCode::unlawful:
      return 1;
    case ErrorCode::cancelled:
      return 130;
    default:
      return 2;
  }
}

CLI::App* add_command(CLI::App& app, Session& session, const std::string& name,
                      const std::string& summary, const std::string& example,
                      std::function<Status()> work) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->footer("Example: superneurons " + name + (example.empty() ? "" : " " + example));
  command->callback([&session, command, work = std::move(work)] {
    Status status = prepare(*command, session);
    if (status) status = work();
    if (status) return;
    Error error = status.error();
    if (error.code == ErrorCode::cancelled) error = {ErrorCode::cancelled, "interrupted"};
    session.console.error(error);
    session.exit_code = exit_code_of(status.error());
  });
  return command;
}

CLI::Option* add_output_option(CLI::App& command, const std::string& names, std::string& file,
                               const std::string& summary) {
  return command.add_option(names, file, summary)->type_name(kOutputType);
}

void add_seed_option(CLI::App& command, std::uint64_t& seed, const std::string& summary) {
  // CLI11 takes -1 for 2^64 - 1.
  const auto fault = [](const std::string& text) {
    std::uint64_t number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool good = code == std::errc{} && end == text.data() + text.size();
    return good ? "" : fmt::format("'{}' is not a whole number from 0 to 2^64 - 1", text);
  };
  command.add_option("--seed", seed, summary)
      ->check(CLI::Validator(fault, "", "seed"))
      ->capture_default_str();
}

void add_json_option(CLI::App& command, std::string& file) {
  add_output_option(command, "--json", file, "result to write as JSON (- for standard output)");
}

Status with_refusal(Status status, const std::string& json, const Session& session) {
  if (status || status.error().code != ErrorCode::does_not_fit) return status;
  Status written = write_json(json, format_refusal_json(status.error(), session.options));
  return written ? std::move(status) : std::move(written);
}

Status write_json(const std::string& file, const std::string& text) {
  if (file.empty()) return Ok{};
  return write_file(file, text);
}

}  // namespace superneurons
