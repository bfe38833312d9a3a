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
#include "policies/request.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

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
void note_missing_units(const cli::GivenOption& option, Console& console) {
  const char* share = option.name == "--host-budget" ? "" : ", or with %";
  for (const std::string& value : option.values)
    for (const std::string& piece : split_list(value))
      if (!piece.empty() && piece.find_first_not_of("0123456789") == std::string::npos)
        console.note(
            fmt::format("{} {} has no unit: taken as {} byte{} (write it with MiB or "
                        "GiB{})",
                        option.name, piece, piece, piece == "1" ? "" : "s", share));
}

/// Files that an option names and that exist: whatever is no output is read.
std::vector<std::string> files_read(const std::vector<cli::GivenOption>& options) {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const cli::GivenOption& option : options)
    for (const std::string& value : option.values)
      if (!option.output && std::filesystem::is_regular_file(value, ignored))
        files.push_back(value);
  return files;
}

/// An output must destroy neither what is read nor another output.
Status check_outputs(const std::vector<cli::GivenOption>& options) {
  std::vector<std::string> taken = files_read(options);
  std::error_code ignored;
  for (const cli::GivenOption& option : options) {
    if (!option.output || option.values.empty()) continue;
    const std::string path = option.text();
    for (const std::string& other : taken) {
      if (path != other && !std::filesystem::equivalent(path, other, ignored)) continue;
      return Error{ErrorCode::bad_usage,
                   fmt::format("{} would overwrite another file of this command", option.name),
                   path};
    }
    if (!path.empty()) taken.push_back(path);
  }
  return Ok{};
}

/// One budget, or several with commas. `size`: host memory is no share of anything.
Status check_budgets_text(const std::string& text, bool size) {
  for (const std::string& piece : split_list(text)) {
    if (size)
      if (const auto bytes = parse_bytes(piece); !bytes) return bytes.error();
    if (Status status = check_budget(piece); !status) return status;
  }
  return Ok{};
}

Status check_budgets(const cli::GivenOption& option) {
  if (option.name.find("budget") == std::string::npos) return Ok{};
  for (const std::string& value : option.values)
    if (Status status = check_budgets_text(value, option.name == "--host-budget"); !status)
      return Error{ErrorCode::bad_usage,
                   fmt::format("{}: {}", option.name, status.error().message)};
  return Ok{};
}

/// What is given is not empty: a script's variable that was not set is not the default.
Status check_empty(const cli::GivenOption& option) {
  for (const std::string& value : option.values)
    if (value.empty()) return Error{ErrorCode::bad_usage, fmt::format("{} is empty", option.name)};
  return Ok{};
}

Status check_allocators(const cli::GivenOption& option) {
  if (option.name != "--allocator") return Ok{};
  for (const std::string& value : option.values)
    if (Status known = check_allocator(value); !known) return known;
  return Ok{};
}

Status prepare(const cli::Command& command, Session& session) {
  const std::vector<cli::GivenOption> options = command.given();
  for (const cli::GivenOption& option : options)
    if (Status status = check_empty(option); !status) return status;
  if (Status status = check_outputs(options); !status) return status;
  session.options = {{"command", session.command_line}};
  for (const cli::GivenOption& option : options) {
    const std::string value = option.text();
    if (!value.empty()) session.options[option.single_name] = value;
    if (Status status = check_budgets(option); !status) return status;
    if (Status status = check_allocators(option); !status) return status;
    if (option.name.find("budget") != std::string::npos)
      note_missing_units(option, session.console);
    if (!option.output) continue;
    if (value == "-" && option.name == "--json") session.console.mute();
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

cli::Command* add_command(cli::App& app, Session& session, const std::string& name,
                          const std::string& summary, const std::string& example,
                          std::function<Status()> work) {
  const std::string footer =
      fmt::format("Example: superneurons {}{}{}", name, example.empty() ? "" : " ", example);
  const auto run = [&session, work = std::move(work)](const cli::Command& command) {
    Status status = prepare(command, session);
    if (status) status = work();
    if (status) return;
    Error error = status.error();
    if (error.code == ErrorCode::cancelled) error = {ErrorCode::cancelled, "interrupted"};
    session.console.error(error);
    session.exit_code = exit_code_of(status.error());
  };
  return app.add_command(name, summary, footer, run);
}

cli::Option* add_output_option(cli::Command& command, const std::string& names, std::string& file,
                               const std::string& summary) {
  return command.add_option(names, file, summary)->output();
}

void add_seed_option(cli::Command& command, std::uint64_t& seed, const std::string& summary) {
  // CLI11 takes -1 for 2^64 - 1.
  const auto fault = [](const std::string& text) {
    std::uint64_t number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool good = code == std::errc{} && end == text.data() + text.size();
    return good ? std::string()
                : fmt::format("'{}' is not a whole number from 0 to 2^64 - 1", text);
  };
  command.add_option("--seed", seed, summary)->check(fault, "seed")->capture_default_str();
}

void add_json_option(cli::Command& command, std::string& file) {
  add_output_option(command, "--json", file, "result to write as JSON (- for standard output)");
}

Status with_refusal(Status status, const std::string& json, const Session& session) {
  if (status || (status.error().code != ErrorCode::does_not_fit &&
                 status.error().code != ErrorCode::unlawful))
    return status;
  Status written = write_json(json, format_refusal_json(status.error(), session.options));
  return written ? std::move(status) : std::move(written);
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> pieces(1);
  for (const char c : text) {
    if (c == ',') pieces.emplace_back();
    else pieces.back() += c;
  }
  return pieces;
}

Status can_be_read(const std::vector<std::string>& files) {
  if (std::count(files.begin(), files.end(), "-") > 1)
    return Error{ErrorCode::bad_usage, "standard input is one file (- is given twice)"};
  for (const std::string& file : files) {
    struct stat found {};
    const auto refuse = [&file](const char* what, int why) {
      return Error{ErrorCode::io, fmt::format("{}: {}", what, std::strerror(why)), file};
    };
    if (file == "-") continue;
    if (::access(file.c_str(), R_OK) != 0) return refuse("cannot be opened", errno);
    if (::stat(file.c_str(), &found) == 0 && S_ISDIR(found.st_mode))
      return refuse("cannot be read", EISDIR);
  }
  return Ok{};
}

Status write_json(const std::string& file, const std::string& text) {
  if (file.empty()) return Ok{};
  return write_file(file, text);
}

}  // namespace superneurons
