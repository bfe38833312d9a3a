#include "tracer/from_activities.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "ir/files.h"
#include "ir/record.h"

namespace superneurons {
namespace {

/// A line of the log; the end record has `activities` and `dropped` instead.
struct ActivityLine {
  std::int64_t tag = -1;
  std::string name;
  std::uint32_t correlation = 0;
  std::uint32_t stream = 0;
  Nanoseconds start{}, end{};
  bool kernel = true;
};

template <class Archive, class Line>
void fields(Archive& archive, Line& line) {
  archive.required("tag", line.tag);
  archive.required("name", line.name);
  archive.required("correlation", line.correlation);
  archive.required("stream", line.stream);
  archive.required("start", line.start);
  archive.required("end", line.end);
  archive.required("kernel", line.kernel);
}

struct LogReader {
  std::string file;
  JsonDocument json;
  ActivityLog log;
  std::unordered_map<std::string, std::uint32_t> name_ids;
  std::int64_t line = 0;
  bool ended = false;

  Error error(std::string message) const {
    return {ErrorCode::bad_input, std::move(message), file, line};
  }

  Status read(std::string_view text, std::int64_t number) {
    line = number;
    if (ended) return error("something follows the end record (would be the last line)");
    if (auto problem = json.parse(text))
      return error(*problem + " (would be one JSON object per line)");
    std::string problem = repeated_key_problem(json);
    if (problem.empty()) problem = json.root().find("r") ? read_end() : read_activity();
    if (!problem.empty()) return error(std::move(problem));
    return Ok{};
  }

  std::string read_end() {
    std::int64_t activities = 0;
    FieldReader reader(json.root(), "the end record");
    reader.required("activities", activities);
    reader.required("dropped", log.dropped);
    ended = true;
    if (reader.problem().empty() && activities != static_cast<std::int64_t>(log.device.size()))
      return fmt::format("the end record states {} activities, the file has {}", activities,
                         log.device.size());
    return reader.problem();
  }

  std::string read_activity() {
    ActivityLine one;
    FieldReader reader(json.root(), "activity", static_cast<std::int64_t>(log.device.size()));
    fields(reader, one);
    if (!reader.problem().empty()) return reader.problem();
    if (one.start.count < 0 || one.end < one.start) return "an activity that ends before it starts";
    const auto name = name_ids.try_emplace(one.name, static_cast<std::uint32_t>(log.names.size()));
    if (name.second) log.names.push_back(one.name);
    log.device.push_back(
        {name.first->second, one.correlation, one.stream, one.start, one.end, one.kernel});
    if (one.tag >= 0) log.tags.push_back({one.correlation, static_cast<std::uint64_t>(one.tag)});
    return "";
  }

  Result<ActivityLog> finish() {
    if (!ended)
      return error(fmt::format("is cut off after {} activities (would end with an end record)",
                               log.device.size()));
    return std::move(log);
  }
};

Op op_of(const ActivityLog& log, const DeviceActivity& activity, std::size_t index) {
  const std::string& name = log.names[activity.name];
  Op op;
  op.name = fmt::format("{}.{}", index, name);
  op.kind = activity.kernel ? "kernel" : name;
  op.choices = {Choice{.ns = activity.end - activity.start}};
  op.kernels = {{name, activity.end - activity.start}};
  op.rerunnable = false;  // who knows what it reads
  return op;
}

}  // namespace

Result<ActivityLog> parse_activity_log(std::string_view text, const std::string& name) {
  LogReader reader{.file = name};
  Status status = for_each_line_of(text, name, [&](std::string_view line, std::int64_t number) {
    return reader.read(line, number);
  });
  if (!status) return std::move(status.error());
  return reader.finish();
}

Result<ActivityLog> read_activity_log(const std::string& path) {
  LogReader reader{.file = path};
  Status status = for_each_line(
      path, [&](std::string_view line, std::int64_t number) { return reader.read(line, number); });
  if (!status) return std::move(status.error());
  return reader.finish();
}

Result<Trace> trace_from_activities(const ActivityLog& log, const std::string& name) {
  if (log.device.empty())
    return Error{.message = "the program did nothing on a GPU (would launch kernels or copies)"};
  std::vector<DeviceActivity> launched = log.device;
  // Calls are numbered in the order in which they are made; a graph launches many under one number.
  std::stable_sort(launched.begin(), launched.end(), [](const auto& a, const auto& b) {
    return std::pair(a.correlation, a.start) < std::pair(b.correlation, b.start);
  });
  Trace trace;
  trace.name = name;
  trace.lowering = "activities";
  trace.dropped_records = log.dropped;
  Nanoseconds first = launched.front().start, last{};
  for (std::size_t i = 0; i < launched.size(); ++i) {
    trace.ops.push_back(op_of(log, launched[i], i));
    first = std::min(first, launched[i].start);
    last = std::max(last, launched[i].end);
  }
  trace.step_ns_traced = last - first;
  const auto known = log.dropped == 0 ? Capability::exact : Capability::inferred;
  for (const Fact fact : {Fact::durations, Fact::kernels})
    trace.capabilities[static_cast<std::size_t>(fact)] = known;
  return trace;
}

}  // namespace superneurons
