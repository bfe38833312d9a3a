#include "ir/record.h"

#include <array>

namespace superneurons {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

struct Form {
  std::string_view format, words;
};
constexpr std::array kForms = {
    Form{"superneurons-trace", "a trace"},
    Form{"superneurons-plan", "a plan"},
    Form{"superneurons-profile", "a device profile"},
    Form{"superneurons-result", "a result of compare, simulate or replay"},
    Form{"superneurons-memory", "memory over plan steps, of simulate --memory"},
    Form{"superneurons-layer-steps", "memory over layer steps, of simulate --layer-steps"},
    Form{"superneurons-show", "a result of show"},
    Form{"superneurons-check", "a result of check"},
    Form{"superneurons-fit", "a result of fit"},
    Form{"superneurons-activities", "a tracer's log, from which convert makes a trace"},
    Form{"superneurons-capture", "a raw capture of PyTorch, from which convert makes a trace"},
};

/// ", a plan" or "".
std::string words_of(std::string_view format) {
  for (const Form& form : kForms)
    if (form.format == format) return ", " + std::string(form.words);
  return "";
}

std::string wanted_form(std::string_view format) {
  const std::string words = words_of(format);
  return " (would be " + (words.empty() ? "" : words.substr(2) + ", ") + "\"format\":\"" +
         std::string(format) + "\" and \"version\":\"" + std::string(kFormatVersion) + "\")";
}

}  // namespace

std::string repeated_key_problem(const JsonDocument& document) {
  if (!document.repeated_key()) return "";
  std::string key;
  append_json_text(key, *document.repeated_key());
  return "the key " + key + " occurs twice in an object (would be once)";
}

std::string header_problem(JsonValue header, std::string_view format) {
  const std::string wanted = wanted_form(format);
  const auto found = header.find("format");
  if (!found && header.find("traceEvents")) return "is a timeline for Perfetto" + wanted;
  if (!found) return "the header lacks \"format\"" + wanted;
  if (!found->is(JsonKind::text) || found->text() != format)
    return "the format is " + found->describe() +
           (found->is(JsonKind::text) ? words_of(found->text()) : "") + wanted;
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

std::string other_layout_problem(std::string_view first, std::string_view second,
                                 std::string_view format) {
  std::string record(first);
  if (first == "{") {
    record += second.substr(0, second.find_last_not_of(" \t\r,") + 1);
    record += '}';
  }
  JsonDocument json;
  if (json.parse(record) || !json.root().is(JsonKind::object)) return "";
  const auto found = json.root().find("format");
  if (!found || (found->is(JsonKind::text) && found->text() == format)) return "";
  return header_problem(json.root(), format);
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
