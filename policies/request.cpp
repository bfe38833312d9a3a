#include "policies/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "ir/dataflow.h"
#include "ir/files.h"
#include "memory/allocator.h"

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
  for (const ModelEntry& entry : framework_models()) names.emplace_back(entry.name);
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

/// What a composition or a model stands for.
std::optional<std::string_view> passes_of(std::string_view name) {
  for (const CompositionEntry& entry : compositions())
    if (entry.name == name) return entry.passes;
  if (const ModelEntry* model = find_model(name)) return model->passes;
  return {};
}

Result<Pass> parse_pass(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto entries = policies();
  const auto entry = std::find_if(entries.begin(), entries.end(),
                                  [&](const PolicyEntry& known) { return known.name == name; });
  if (entry == entries.end()) {
    const std::optional<std::string_view> passes = passes_of(name);
    if (passes && colon != std::string_view::npos)
      return bad_usage(fmt::format(
          "policy {} is a composition and takes no options; write its passes, {}, with theirs",
          name, *passes));
    return unknown_policy(name);
  }
  Pass pass{&*entry, {}};
  for (const OptionEntry& option : entry->options)
    pass.options.emplace(option.name, option.fallback);
  if (colon == std::string_view::npos) return pass;
  std::set<std::string> given;
  for (const std::string_view setting : split(text.substr(colon + 1), ',')) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string_view::npos)
      return bad_usage(
          fmt::format("policy {}: '{}' is no option (write key=value)", name, setting));
    const auto known = pass.options.find(std::string(setting.substr(0, equals)));
    if (known == pass.options.end()) return unknown_option(*entry, setting.substr(0, equals));
    if (!given.insert(known->first).second)
      return bad_usage(fmt::format("policy {}: option {} is given twice", name, known->first));
    known->second = setting.substr(equals + 1);
  }
  return pass;
}

using Passes = std::vector<Pass>;

inline constexpr std::size_t kMostAlternatives = 64;

/// Each of `before` followed by each of `after`.
std::vector<Passes> followed(const std::vector<Passes>& before, const std::vector<Passes>& after) {
  std::vector<Passes> result;
  for (const Passes& head : before)
    for (const Passes& tail : after) {
      result.push_back(head);
      result.back().insert(result.back().end(), tail.begin(), tail.end());
    }
  return result;
}

/// What one name of a sequence stands for.
Result<std::vector<Passes>> parse_part(std::string_view part) {
  if (const std::optional<std::string_view> known = passes_of(part)) return parse_policy(*known);
  if (part.starts_with("exec:") || part.starts_with("exec,"))
    return bad_usage("exec:COMMAND stands alone, its command may contain '+' (no pass before it)");
  Result<Pass> pass = parse_pass(part);
  if (!pass) return pass.error();
  return std::vector<Passes>{{std::move(*pass)}};
}

/// Between two signs, or before or after one, stands nothing.
Error missing_part(std::string_view text, std::string_view what, char sign) {
  const char* where = text.empty() || text.front() == sign ? "before"
                      : text.back() == sign                ? "after"
                                                           : "at a";
  return bad_usage(fmt::format("policy '{}': {} is missing {} {}", text, what, where, sign));
}

Result<std::vector<Passes>> parse_sequence(std::string_view text) {
  std::vector<Passes> result{{}};
  for (const std::string_view part : split(text, '+')) {
    if (part.empty()) return missing_part(text, "a pass", '+');
    const Result<std::vector<Passes>> next = parse_part(part);
    if (!next) return next;
    if (result.size() * next->size() > kMostAlternatives)
      return bad_usage(fmt::format("'{}' has more than {} alternatives", text, kMostAlternatives));
    result = followed(result, *next);
  }
  return result;
}

}  // namespace

std::string text_of(const Pass& pass) {
  std::string text(pass.entry->name);
  bool first = true;
  for (const OptionEntry& option : pass.entry->options) {
    const std::string& value = pass.options.at(std::string(option.name));
    if (value == option.fallback) continue;
    text += fmt::format("{}{}={}", std::exchange(first, false) ? ":" : ",", option.name, value);
  }
  return text;
}

std::optional<Error> refuse_other_lowering(const Trace& trace, std::string_view text) {
  for (const std::string_view alternative : split(text, '/'))
    for (const std::string_view part : split(alternative, '+')) {
      const ModelEntry* model = find_model(part);
      if (model == nullptr || model->lowering == trace.lowering) continue;
      return bad_usage(fmt::format(
          "policy {} is a model of a framework that needs a trace lowered as {}, and {} "
          "is lowered as {} (superneurons build NETWORK --lowering {})",
          model->name, model->lowering, trace.name,
          trace.lowering.empty() ? "nothing known" : trace.lowering, model->lowering));
    }
  return {};
}

Result<std::vector<std::vector<Pass>>> parse_policy(std::string_view text) {
  if (text.empty()) return bad_usage("no policy is named (for example: liveness)");
  std::vector<Passes> result;
  for (const std::string_view alternative : split(text, '/')) {
    if (alternative.empty()) return missing_part(text, "an alternative", '/');
    Result<std::vector<Passes>> some = parse_sequence(alternative);
    if (!some) return some;
    if (result.size() + some->size() > kMostAlternatives)
      return bad_usage(fmt::format("'{}' has more than {} alternatives", text, kMostAlternatives));
    for (Passes& passes : *some) result.push_back(std::move(passes));
  }
  return result;
}

Status check_allocator(const std::string& name) {
  if (find_allocator(name) != nullptr) return Ok{};
  std::vector<std::string> names;
  for (const AllocatorEntry& entry : allocators()) names.emplace_back(entry.name);
  const std::string near = nearest_name(name, names);
  return bad_usage(fmt::format("unknown allocator '{}' ({}there are {})", name,
                               near.empty() ? "" : "did you mean " + near + "? ",
                               fmt::join(names, ", ")));
}

Status check_policy(std::string_view text) {
  const Result<std::vector<std::vector<Pass>>> alternatives = parse_policy(text);
  if (!alternatives) return alternatives.error();
  Trace nothing;
  nothing.capabilities.fill(Capability::exact);
  const Dataflow flow = analyze(nothing);
  const Plan plan = keep_all_plan(nothing);
  const DeviceProfile profile;
  const auto predict = [](const Plan&) -> Result<Prediction> { return Prediction{}; };
  for (const std::vector<Pass>& passes : *alternatives)
    for (const Pass& pass : passes) {
      const PolicyContext context{nothing, flow, profile, {}, predict, pass.options};
      const Result<Plan> made = pass.entry->plan(context, plan);
      if (!made && made.error().code == ErrorCode::bad_usage) return made.error();
    }
  return Ok{};
}

}  // namespace superneurons
