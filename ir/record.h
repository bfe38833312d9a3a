// What the text forms share: the header with its version, errors with their place, cut-off files.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/fields.h"
#include "ir/result.h"

namespace superneurons {

inline constexpr std::string_view kFormatVersion = "0.1";

/// What is wrong with "format" and "version" of a header, or "". Any 0.x is read: keys that this
/// program does not know are ignored.
std::string header_problem(JsonValue header, std::string_view format);

/// Of a text that is no `format` at all, by its first two lines: which of our files it is, on one
/// line or, as results and profiles are, on many. "" where that cannot be told.
std::string other_layout_problem(std::string_view first, std::string_view second,
                                 std::string_view format);

/// That an object has a key twice, or "".
std::string repeated_key_problem(const JsonDocument& document);

/// Turns lines into records for `Reader` and keeps what they share. Reader has
///     Status record(JsonValue record, std::string_view kind)   a line after the header
///     Status header(JsonValue record)
///     std::string progress()                                   "op 17 \"conv\"", "the header" ...
/// with errors lacking their place.
template <class Reader>
class RecordLines {
 public:
  RecordLines(Reader& reader, std::string_view format, std::string file)
      : reader_(reader), format_(format), file_(std::move(file)) {}

  Status line(std::string_view text, std::int64_t number) {
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) return Ok{};
    if (not_json_) {
      std::string other = has_header_ ? "" : other_layout_problem("{", text, format_);
      return other.empty() ? std::move(*not_json_) : error(std::move(other));
    }
    line_ = number;
    if (auto problem = json_.parse(text)) {
      // Kept until the next line shows that it is not just the last one, cut off.
      not_json_ = error(std::move(*problem) + " (would be one JSON object per line)");
      return Ok{};
    }
    std::string repeated = repeated_key_problem(json_);
    if (!repeated.empty()) return error(std::move(repeated));
    Status status = record(json_.root());
    if (!status) return error(std::move(status.error().message));
    return status;
  }

  /// After the last line.
  Status finish() {
    if (line_ == 0) return error("is empty (would start with a header)");
    if (not_json_ && !has_header_) return std::move(*not_json_);
    if (not_json_ || !ended_)
      return error("is cut off after " + reader_.progress() + " (would end with an end record)");
    return Ok{};
  }

  Error error(std::string message) const {
    return {ErrorCode::bad_input, std::move(message), file_, line_};
  }

 private:
  Status record(JsonValue record) {
    if (!record.is(JsonKind::object))
      return error("is " + record.describe() + " (would be an object)");
    if (ended_) return error("something follows the end record (would be the last line)");
    const auto kind = record.find("r");
    const std::string_view name = kind && kind->is(JsonKind::text) ? kind->text() : "";
    if (!has_header_) {
      std::string problem = header_problem(record, format_);
      if (!problem.empty()) return error(std::move(problem));
      has_header_ = true;
      return reader_.header(record);
    }
    if (name == "header") return error("a second header (would be the first line only)");
    ended_ = name == "end";
    return reader_.record(record, name);
  }

  Reader& reader_;
  std::string_view format_;
  std::string file_;
  JsonDocument json_;
  std::optional<Error> not_json_;
  std::int64_t line_ = 0;
  bool has_header_ = false, ended_ = false;
};

/// The error of a count in the end record, or nothing.
Status compare_count(JsonValue end, std::string_view key, std::int64_t found);

}  // namespace superneurons
