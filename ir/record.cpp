#include "ir/record.h"

namespace superneurons {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string repeated_key_problem(const JsonDocument& document) {
  if (!document.repeated_key()) return "";
  std::string key;
  append_json_text(key, *document.repeated_key());
  return "the key " + key + " occurs twice in an object (would be once)";
}

std::string header_problem(JsonValue header, std::string_view format) {
  const std::string wanted = " (would be \"format\":\"" + std::string(format) +
                             "\" and \"version\":\"" + std::string(kFormatVersion) + "\")";
  const auto found = header.find("format");
  if (!found) return "the header lacks \"format\"" + wanted;
  if (!found->is(JsonKind::text) || found->text() != format)
    return "the format is " + found->describe() + wanted;
  const auto version = header.find("version");
  if (!version || !version->is(JsonKind::text))
    return "the header lacks a \"version\" in quotes" + wanted;
  const std::string_view text = version->text();
  const auto dot = text.find('.');
  if (dot == std::string_view::npos || !is_number(text.substr(0, dot)) ||
      !is_number(text.substr(dot + 1)))
    return "the version is " + version->describe() + wanted;
  if (text.substr(0, dot).find_first_not_of('0') != std::string_view::npos)
    return "version " + std::string(text) + " is newer than this program (would be 0.x)";
  return {};
}

Status compare_count(JsonValue end, std::string_view key, std::int64_t found) {
  FieldReader reader(end, "the end record");
  std::int64_t stated = found;
  reader.required(key, stated);
  if (!reader.problem().empty()) return Error{.message = reader.problem()};
  if (stated == found) return Ok{};
  return Error{.message = "the end record states " + std::to_string(stated) + " " +
                          std::string(key) + ", the file has " + std::to_string(found)};
}

}  // namespace superneurons
