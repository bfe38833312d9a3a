#include "ir/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace superneurons {

/// Receives nlohmann's events; its parser does not recurse, so only our own depth needs a limit.
class JsonBuilder {
 public:
  explicit JsonBuilder(JsonDocument& document) : document_(document) {}
  std::string problem;

  bool null() { return add(JsonKind::null), fits(); }
  bool boolean(bool value) { return add(JsonKind::boolean).integer = value, fits(); }
  bool number_integer(std::int64_t value) {
    JsonNode& node = add(JsonKind::integer);
    node.integer = value;
    node.number = static_cast<double>(value);
    return fits();
  }
  bool number_unsigned(std::uint64_t value) {
    if (value <= static_cast<std::uint64_t>(INT64_MAX))
      return number_integer(static_cast<std::int64_t>(value));
    return number_float(static_cast<double>(value), {});
  }
  bool number_float(double value, const std::string&) {
    return add(JsonKind::number).number = value, fits();
  }
  bool string(const std::string& value) {
    JsonNode& node = add(JsonKind::text);
    node.text = append(value);
    node.text_size = static_cast<std::uint32_t>(value.size());
    return fits();
  }
  template <class Binary>
  bool binary(const Binary&) {
    return false;
  }
  bool key(const std::string& value) {
    key_ = append(value);
    key_size_ = static_cast<std::uint32_t>(value.size());
    return true;
  }
  bool start_object(std::size_t) { return open(JsonKind::object); }
  bool start_array(std::size_t) { return open(JsonKind::array); }
  bool end_object() {
    close();
    if (!document_.repeated_key_) find_repeated_key(open_[depth_]);
    return true;
  }
  bool end_array() { return close(); }
  template <class Exception>
  bool parse_error(std::size_t position, const std::string&, const Exception& exception) {
    // "[json.exception...] parse error at line 1, column 8: syntax error ...": the end tells.
    document_.problem_offset_ = position;
    problem = exception.what();
    const auto column = problem.find("column ");
    if (column != std::string::npos) problem = problem.substr(column);
    if (problem.size() > 300) problem = problem.substr(0, 300) + "...";
    return false;
  }

 private:
  JsonNode& add(JsonKind kind) {
    JsonNode node;
    node.kind = kind;
    node.next = static_cast<std::uint32_t>(document_.nodes_.size() + 1);
    node.key = std::exchange(key_, 0);
    node.key_size = std::exchange(key_size_, 0);
    document_.nodes_.push_back(node);
    return document_.nodes_.back();
  }
  bool fits() {
    if (document_.nodes_.size() <= kMostJsonNodes) return true;
    problem = "more than " + std::to_string(kMostJsonNodes) + " values in one record";
    return false;
  }
  std::uint32_t append(const std::string& value) {
    const auto offset = static_cast<std::uint32_t>(document_.characters_.size());
    document_.characters_ += value;
    return offset;
  }
  bool open(JsonKind kind) {
    if (depth_ == kDeepestJson) {
      problem = "nested too deeply (at most " + std::to_string(kDeepestJson) + " levels)";
      return false;
    }
    open_[depth_++] = static_cast<std::uint32_t>(document_.nodes_.size());
    add(kind);
    return fits();
  }
  bool close() {
    document_.nodes_[open_[--depth_]].next = static_cast<std::uint32_t>(document_.nodes_.size());
    return true;
  }

  void find_repeated_key(std::uint32_t object) {
    keys_.clear();
    for (const JsonValue member : JsonValue(document_, object)) keys_.push_back(member.key());
    std::sort(keys_.begin(), keys_.end());
    const auto repeated = std::adjacent_find(keys_.begin(), keys_.end());
    if (repeated != keys_.end()) document_.repeated_key_ = std::string(*repeated);
  }

  JsonDocument& document_;
  std::vector<std::string_view> keys_;  // scratch
  std::uint32_t key_ = 0, key_size_ = 0;
  int depth_ = 0;
  std::uint32_t open_[kDeepestJson] = {};
};

std::optional<std::string> JsonDocument::parse(std::string_view text) {
  nodes_.clear();
  characters_.clear();
  problem_offset_ = 0;
  repeated_key_.reset();
  if (text.size() > UINT32_MAX / 2) return "too long for one JSON value";
  JsonBuilder builder(*this);
  if (nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &builder)) return {};
  return builder.problem.empty() ? "is not JSON" : std::move(builder.problem);
}

std::optional<JsonValue> JsonValue::find(std::string_view name) const {
  if (!is(JsonKind::object)) return {};
  for (const JsonValue member : *this)
    if (member.key() == name) return member;
  return {};
}

std::string JsonValue::describe() const {
  std::string out;
  switch (kind()) {
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return integer() ? "true" : "false";
    case JsonKind::array:
      return "an array";
    case JsonKind::object:
      return "an object";
    case JsonKind::integer:
      append_json_number(out, integer());
      break;
    case JsonKind::number:
      append_json_number(out, number());
      if (out.find_first_of(".e") == std::string::npos) out += ".0";
      break;
    case JsonKind::text:
      append_json_text(out,
                       text().size() > 60 ? std::string(text().substr(0, 60)) + "..." : text());
      break;
  }
  return out;
}

void append_json_text(std::string& out, std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
  });
  if (plain) {
    out += '"';
    out += text;
    out += '"';
    return;
  }
  out += nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_json_number(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
  } else if (number == 0 && std::signbit(number)) {
    out += "-0.0";  // "-0" would read back as the whole number 0
  } else if (std::abs(number) < 0x1p53 && number == std::trunc(number)) {
    append_json_number(out, static_cast<std::int64_t>(number));
  } else {
    char buffer[32];
    out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
  }
}

void append_json_number(std::string& out, std::int64_t number) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
}

}  // namespace superneurons
