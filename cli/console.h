// Where the program speaks: results on standard output; progress, notes and errors on standard
// error.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "ir/result.h"

namespace superneurons {

class Console {
 public:
  Console();

  /// Part of the result, for people. Nothing once mute() was called.
  void print(std::string_view text);
  /// Leaves standard output to the JSON that `--json -` writes there.
  void mute() { muted_ = true; }
  /// One line that the next one replaces; only on a terminal, and only after the first second.
  void progress(const std::string& line);
  /// The same; where there is no terminal, a note at most every ten seconds.
  void sign_of_life(const std::string& line);
  /// Hands on what was printed so far.
  void flush();
  /// A remark that is no error.
  void note(std::string_view text);
  /// "superneurons: FILE:LINE: what is wrong (what would be right)".
  void error(const Error& error);

  /// Error io if standard output did not take everything; call it at the end.
  Status finish();
  /// Whether nobody reads the output any more (`| head`): no reason to complain.
  bool reader_gone() const { return reader_gone_; }

 private:
  void clear_line();

  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_sign_;
  bool terminal_ = false;
  bool line_shown_ = false;
  bool muted_ = false;
  bool reader_gone_ = false;
  int failure_ = 0;  // errno of the first write that failed
};

}  // namespace superneurons
