#include "policies/request.h"

#include <fmt/core.h>

#include <algorithm>

#include "ir/files.h"

namespace superneurons {
namespace {

Error bad_usage(std::string message) { return {ErrorCode::bad_usage, std::move(message)}; }

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(by);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Error unknown_policy(std::string_view name) {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policies()) names.emplace_back(entry.name);
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  const std::string near = nearest_name(name, names);
  if (!near.empty())
    return bad_usage(fmt::format("unknown policy '{}' (did you mean {}?)", name, near));
  std::string all;
  for (const std::string& known : names) all += fmt::format("{}{}", all.empty() ? "" : ", ", known);
  return bad_usage(fmt::format("unknown policy '{}' (there are {} and exec:COMMAND)", name, all));
}

Error unknown_option(const PolicyEntry& entry, std::string_view text) {
  std::string all;
  for (const OptionEntry& option : entry.options)
    all += fmt::format("{}{}", all.empty() ? "" : ", ", option.name);
  return bad_usage(fmt::format("policy {}: unknown option '{}' (it has {})", entry.name, text,
                               all.empty() ? "none" : all));
}

Result<Pass> parse_pass(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto entries = policies();
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [&](const PolicyEntry& known) { return known.name == name; });
  if (entry == entries.end()) {
    for (const CompositionEntry& known : compositions())
      if (known.name == name && colon != std::string_view::npos)
        return bad_usage(fmt::format(
            "policy {} is a composition and takes no options; write its passes, {}, with theirs",
            name, known.passes));
    return unknown_policy(name);
  }
  Pass pass{&*entry, {}};
  for (const OptionEntry& option : entry->options)
    pass.options.emplace(option.name, option.fallback);
  if (colon == std::string_view::npos) return pass;
  for (const std::string_view setting : split(text.substr(colon + 1), ',')) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string_view::npos)
      return bad_usage(
          fmt::format("policy {}: '{}' is no option (write key=value)", name, setting));
    const auto known = pass.options.find(std::string(setting.substr(0, equals)));
    if (known == pass.options.end()) return unknown_option(*entry, setting.substr(0, equals));
    known->second = setting.substr(equals + 1);
  }
  return pass;
}

}  // namespace

Result<std::vector<Pass>> parse_passes(std::string_view text) {
  if (text.empty()) return bad_usage("no policy is named (for example: liveness)");
  std::vector<Pass> passes;
  for (const std::string_view part : split(text, '+')) {
    const auto known = compositions();
    const auto found = std::find_if(known.begin(), known.end(), [&](const CompositionEntry& entry) {
      return entry.name == part;
    });
    if (found != known.end()) {
      Result<std::vector<Pass>> inner = parse_passes(found->passes);
      if (!inner) return inner.error();
      passes.insert(passes.end(), inner->begin(), inner->end());
      continue;
    }
    if (part.starts_with("exec:") || part.starts_with("exec,"))
      return bad_usage(
          "exec:COMMAND stands alone, its command may contain '+' (no pass before it)");
    Result<Pass> pass = parse_pass(part);
    if (!pass) return pass.error();
    passes.push_back(std::move(*pass));
  }
  return passes;
}

}  // namespace superneurons
