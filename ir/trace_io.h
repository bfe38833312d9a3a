// Text form of traces: JSON Lines, gzip when the name ends in .gz. Described in traces/FORMAT.md.
#pragma once

#include <string>
#include <string_view>

#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

/// Reads and validates (find_fault). Errors carry file and line. "-" is standard input.
Result<Trace> read_trace(const std::string& path);
/// From memory, uncompressed; `name` is used in errors.
Result<Trace> parse_trace(std::string_view text, const std::string& name);
std::string format_trace(const Trace& trace);
/// Writes to a temporary name and renames.
Status write_trace(const Trace& trace, const std::string& path);

/// 16 hex digits: hash of the canonical text (format_trace), so it does not depend on compression,
/// key order or unknown keys of the file.
std::string trace_hash(const Trace& trace);

}  // namespace superneurons
