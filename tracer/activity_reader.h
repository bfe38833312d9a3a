// Reads the activity log of a CUDA program (traces/FORMAT.md, "Activity logs") record by record, so
// that its size does not matter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/result.h"
#include "tracer/activity_sink.h"

namespace superneurons {

/// Receives what a log holds, in its order. Names are positions in ActivityLogEnd::names. The first
/// Error ends the reading and gets the log's name and line if it has none.
class ActivityVisitor {
 public:
  virtual ~ActivityVisitor() = default;
  virtual Status work(const SeenWork& work, std::uint32_t name) = 0;
  virtual Status call(const SeenCall& call, std::uint32_t name, std::string_view text) = 0;
  virtual Status memory(const SeenMemory& memory) = 0;
  virtual Status mark(const SeenMark& mark, std::uint32_t name) = 0;
};

struct ActivityLogEnd {
  std::vector<std::string> names;
  std::string command;
  std::int64_t process = 0;
  std::int64_t works = 0;    // kernels, copies and memsets
  std::int64_t dropped = 0;  // records that the tracer lost
  std::int64_t lines = 0;
  bool complete = false;  // false: cut off, which a program that ended hard leaves
};

/// Errors carry file and line. Only a log's end may lack: its last line where that is half written,
/// and the end record.
Result<ActivityLogEnd> read_activities(const std::string& path, ActivityVisitor& visitor);
/// From memory; `name` is used in errors.
Result<ActivityLogEnd> parse_activities(std::string_view text, const std::string& name,
                                        ActivityVisitor& visitor);

/// Kernels, copies and memsets of a log, by looking at how its lines begin. For choosing among
/// logs.
Result<std::int64_t> count_works(const std::string& path);

}  // namespace superneurons
