// Whole files in and out: gzip by name, temporary name and rename, bounded lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/result.h"

namespace superneurons {

/// Longest line that a reader accepts; a longer one is an Error, not an allocation.
inline constexpr std::size_t kLongestLine = 16U << 20;

/// Calls `line(text, number)` for each line of a plain or gzipped file ("-": standard input),
/// stopping at the first Error. A truncated or damaged gzip stream is an Error naming the last good
/// line.
Status for_each_line(const std::string& path,
                     const std::function<Status(std::string_view text, std::int64_t number)>& line);

/// The same for text in memory; `name` is used in errors.
Status for_each_line_of(
    std::string_view text, const std::string& name,
    const std::function<Status(std::string_view text, std::int64_t number)>& line);

/// The file that writing to `path` changes: what symbolic links lead to, there or not.
std::string followed(const std::string& path);

/// Writes `text` to a temporary file beside `path`, gzips it if the name ends in .gz, and renames.
/// On failure neither remains. Symbolic links stay and are followed. "-" is standard output; a
/// device or pipe is written directly.
Status write_file(const std::string& path, std::string_view text);
Result<std::string> read_file(const std::string& path);

/// "12GiB", "800MiB", "512KiB", "4096" -> bytes. Error bad_usage otherwise, also on overflow.
Result<Bytes> parse_bytes(std::string_view text);
/// "5.43 GiB", "886.2 MiB", "12 KiB", "17 B".
std::string format_bytes(Bytes bytes);
/// "12.3 ms", "4.56 us", "7 ns".
std::string format_time(Nanoseconds ns);

/// The nearest of `names` to `wanted` for "did you mean", or "" if none is near.
std::string nearest_name(std::string_view wanted, const std::vector<std::string>& names);

}  // namespace superneurons
