#include "cli/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace superneurons {
namespace {

/// fmt::print throws where a stream is full or closed; this says nothing of it.
void to_standard_error(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

/// Messages quote files and commands; a line stays a line, and no terminal obeys them.
std::string printable(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return text;
}

}  // namespace

Console::Console()
    : start_(std::chrono::steady_clock::now()),
      last_sign_(start_),
      terminal_(isatty(STDERR_FILENO) == 1) {}

void Console::clear_line() {
  if (line_shown_) to_standard_error("\r\033[K");
  line_shown_ = false;
}

void Console::print(std::string_view text) {
  clear_line();
  if (muted_ || failure_ != 0) return;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) failure_ = errno;
}

void Console::flush() {
  clear_line();
  if (std::fflush(stdout) != 0 && failure_ == 0) failure_ = errno;
}

void Console::progress(const std::string& line) {
  if (!terminal_ || std::chrono::steady_clock::now() - start_ < std::chrono::seconds(1)) return;
  std::fflush(stdout);
  clear_line();
  to_standard_error("  " + printable(line));
  line_shown_ = true;
}

void Console::sign_of_life(const std::string& line) {
  progress(line);
  const auto now = std::chrono::steady_clock::now();
  if (terminal_ || now - last_sign_ < std::chrono::seconds(10)) return;
  last_sign_ = now;
  note(line);
}

void Console::note(std::string_view text) {
  clear_line();
  std::fflush(stdout);
  to_standard_error(printable(fmt::format("superneurons: note: {}", text)) + "\n");
}

void Console::error(const Error& error) {
  clear_line();
  std::fflush(stdout);
  std::string where;
  if (!error.file.empty()) where = error.file + ":";
  if (error.line > 0) where += fmt::format("{}:", error.line);
  if (!where.empty()) where += ' ';
  to_standard_error(printable(fmt::format("superneurons: {}{}", where, error.message)) + "\n");
}

Status Console::finish() {
  flush();
  reader_gone_ = failure_ == EPIPE;
  if (failure_ == 0) return Ok{};
  return Error{ErrorCode::io, fmt::format("cannot be written: {}", std::strerror(failure_)),
               "standard output"};
}

}  // namespace superneurons
