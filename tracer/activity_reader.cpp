#include "tracer/activity_reader.h"

#include <fmt/format.h>

#include <optional>

#include "ir/files.h"
#include "ir/record.h"

namespace superneurons {
namespace {

class LogReader {
 public:
  LogReader(std::string file, ActivityVisitor& visitor)
      : file_(std::move(file)), visitor_(visitor) {}

  Status line(std::string_view text, std::int64_t number) {
    if (not_json_) return std::move(*not_json_);
    line_ = number;
    if (end_.complete) return error("something follows the end record (would be the last line)");
    if (auto problem = json_.parse(text)) {
      // Kept until the next line shows that it is not just the last one, cut off.
      not_json_ = error(*problem + " (would be one JSON object per line)");
      return Ok{};
    }
    std::string problem = repeated_key_problem(json_);
    if (!problem.empty()) return error(std::move(problem));
    end_.lines = number;
    Status status = record(json_.root());
    if (!status && status.error().file.empty()) {
      status.error().file = file_;
      status.error().line = line_;
    }
    return status;
  }

  Result<ActivityLogEnd> finish() {
    if (not_json_ && !has_header_) return std::move(*not_json_);
    if (!has_header_) return error("is empty (would start with a header)");
    return std::move(end_);
  }

 private:
  Error error(std::string message) const {
    return {ErrorCode::bad_input, std::move(message), file_, line_};
  }
  static Status status(const FieldReader& reader) {
    if (reader.problem().empty()) return Ok{};
    return Error{.message = reader.problem()};
  }

  Status record(JsonValue record) {
    if (!record.is(JsonKind::object))
      return error("is " + record.describe() + " (would be an object)");
    if (!has_header_) return header(record);
    const auto kind = record.find("r");
    const std::string_view name = kind && kind->is(JsonKind::text) ? kind->text() : "";
    if (name == "kernel") return work(record, DeviceWork::kernel, name);
    if (name == "call") return call(record);
    if (name == "copy") return work(record, DeviceWork::copy, name);
    if (name == "set") return work(record, DeviceWork::set, name);
    if (name == "open" || name == "close") return mark(record, name);
    if (name == "allocate" || name == "free") return memory(record, name);
    if (name == "name") return add_name(record);
    if (name == "end") return end(record);
    if (name == "header") return error("a second header (would be the first line only)");
    if (name.empty()) return error("a record without a kind (would have \"r\":\"kernel\" ...)");
    return Ok{};  // of a newer version, or a tag
  }

  Status header(JsonValue record) {
    std::string problem = header_problem(record, "superneurons-activities");
    if (!problem.empty()) return error(std::move(problem));
    FieldReader reader(record, "the header");
    reader.optional("process", end_.process);
    reader.optional("command", end_.command);
    has_header_ = true;
    return status(reader);
  }

  Status add_name(JsonValue record) {
    FieldReader reader(record, "name", static_cast<std::int64_t>(end_.names.size()));
    std::uint32_t id = 0;
    std::string text;
    reader.required("id", id);
    reader.required("text", text);
    if (reader.problem().empty() && id != end_.names.size())
      return error(fmt::format("name {} comes where {} is due", id, end_.names.size()));
    name_bytes_ += text.size();
    if (end_.names.size() == kMostNames || name_bytes_ > kMostNameBytes)
      return error("there are too many names (would be at most 2^20, and 64 MiB, in a log)");
    end_.names.push_back(std::move(text));
    return status(reader);
  }

  /// Reads a reference to a name that was given before.
  void name(FieldReader& reader, std::uint32_t& id) const {
    reader.required("name", id);
    if (reader.problem().empty() && id >= end_.names.size())
      reader.fail(
          fmt::format("\"name\" is {} (would be one of the {} so far)", id, end_.names.size()));
  }

  /// Times are below the largest sum that a trace may have.
  static void interval(FieldReader& reader, std::int64_t& start, std::int64_t& end) {
    reader.required("start", start);
    reader.required("end", end);
    if (reader.problem().empty() && (start < 0 || end < start || end >= kLongest))
      reader.fail("it ends before it starts, or has times that are negative or too large");
  }

  static void moment(FieldReader& reader, std::int64_t& at) {
    reader.required("at", at);
    if (reader.problem().empty() && (at < 0 || at >= kLongest))
      reader.fail("\"at\" is negative or too large");
  }

  Status work(JsonValue record, DeviceWork kind, std::string_view what) {
    FieldReader reader(record, what, end_.works);
    SeenWork seen{.kind = kind};
    std::uint32_t id = 0;
    name(reader, id);
    reader.required("call", seen.call);
    reader.required("stream", seen.stream);
    interval(reader, seen.start, seen.end);
    if (kind != DeviceWork::kernel) reader.optional("bytes", seen.bytes);
    if (!reader.problem().empty()) return error(reader.problem());
    ++end_.works;
    return visitor_.work(seen, id);
  }

  Status call(JsonValue record) {
    FieldReader reader(record, "a call");
    SeenCall seen;
    std::uint32_t id = 0;
    name(reader, id);
    reader.required("call", seen.call);
    reader.required("thread", seen.thread);
    interval(reader, seen.start, seen.end);
    if (!reader.problem().empty()) return error(reader.problem());
    return visitor_.call(seen, id, end_.names[id]);
  }

  Status memory(JsonValue record, std::string_view verb) {
    FieldReader reader(record, verb);
    SeenMemory seen{.allocates = verb == "allocate"};
    std::int64_t address = 0;
    reader.required("address", address);
    seen.address = static_cast<std::uint64_t>(address);
    reader.required("bytes", seen.bytes);
    moment(reader, seen.at);
    if (reader.problem().empty() && (address < 0 || seen.bytes < 0 || seen.bytes >= kLongest))
      reader.fail("\"address\" or \"bytes\" is negative or too large");
    if (!reader.problem().empty()) return error(reader.problem());
    return visitor_.memory(seen);
  }

  Status mark(JsonValue record, std::string_view verb) {
    FieldReader reader(record, verb == "open" ? "a range" : "a range's end");
    SeenMark seen{.begins = verb == "open"};
    std::uint32_t id = 0;
    reader.required("range", seen.id);
    if (seen.begins) {
      name(reader, id);
      reader.required("thread", seen.thread);
    }
    moment(reader, seen.at);
    if (!reader.problem().empty()) return error(reader.problem());
    return visitor_.mark(seen, id);
  }

  Status end(JsonValue record) {
    std::int64_t works = 0;
    FieldReader reader(record, "the end record");
    reader.required("activities", works);
    reader.required("dropped", end_.dropped);
    if (!reader.problem().empty()) return error(reader.problem());
    if (works != end_.works)
      return error(
          fmt::format("the end record states {} activities, the file has {}", works, end_.works));
    if (end_.dropped < 0) return error("the number of dropped records is negative");
    end_.complete = true;
    return Ok{};
  }

  static constexpr std::int64_t kLongest = std::int64_t{1} << 57;
  std::string file_;
  ActivityVisitor& visitor_;
  JsonDocument json_;
  ActivityLogEnd end_;
  std::optional<Error> not_json_;
  std::size_t name_bytes_ = 0;
  std::int64_t line_ = 0;
  bool has_header_ = false;
};

}  // namespace

Result<ActivityLogEnd> read_activities(const std::string& path, ActivityVisitor& visitor) {
  LogReader reader(path, visitor);
  Status status = for_each_line(
      path, [&](std::string_view text, std::int64_t number) { return reader.line(text, number); });
  if (!status) return std::move(status.error());
  return reader.finish();
}

Result<ActivityLogEnd> parse_activities(std::string_view text, const std::string& name,
                                        ActivityVisitor& visitor) {
  LogReader reader(name, visitor);
  Status status = for_each_line_of(text, name, [&](std::string_view line, std::int64_t number) {
    return reader.line(line, number);
  });
  if (!status) return std::move(status.error());
  return reader.finish();
}

Result<std::int64_t> count_works(const std::string& path) {
  std::int64_t count = 0;
  Status status = for_each_line(path, [&](std::string_view text, std::int64_t) -> Status {
    for (const std::string_view head : {R"({"r":"kernel")", R"({"r":"copy")", R"({"r":"set")"})
      if (text.substr(0, head.size()) == head) ++count;
    return Ok{};
  });
  if (!status) return std::move(status.error());
  return count;
}

}  // namespace superneurons
