#include "simulator/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>
#include <vector>

#include "ir/files.h"

namespace superneurons {
namespace {

using Json = nlohmann::ordered_json;
using Row = std::vector<std::string>;

/// Share of `of` (> 0), "" otherwise.
std::string ratio(Nanoseconds value, Nanoseconds of) {
  if (of.count <= 0) return "";
  return fmt::format("{:.3f}", static_cast<double>(value.count) / static_cast<double>(of.count));
}

std::string percent(std::int64_t value, std::int64_t of) {
  if (of <= 0) return "";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(value) / static_cast<double>(of));
}

void put(Json& json, const char* name, const std::string& value) {
  if (!value.empty()) json[name] = value;
}

Json json_of(const WorkspaceRow& row) {
  return {{"op", row.op},
          {"choice", row.choice},
          {"fastest", row.fastest},
          {"assigned_bytes", row.assigned.count},
          {"wanted_bytes", row.wanted.count},
          {"runs", row.runs},
          {"ns", row.ns.count},
          {"lost_ns", row.lost.count}};
}

Json json_of(const Outcome& outcome) {
  Json json = {{"policy", outcome.policy},
               {"trace", outcome.trace},
               {"trace_hash", outcome.trace_hash},
               {"allocator", outcome.allocator},
               {"budget_bytes", outcome.budget_bytes.count},
               {"live_peak_bytes", outcome.live_peak_bytes.count},
               {"placed_peak_bytes", outcome.placed_peak_bytes.count}};
  if (outcome.reserved_peak_bytes) {
    json["allocated_peak_bytes"] = outcome.allocated_peak_bytes->count;
    json["reserved_peak_bytes"] = outcome.reserved_peak_bytes->count;
  }
  for (std::size_t i = 0; i < kRoleNames.size(); ++i)
    json["scope_peak_bytes"][std::string(kRoleNames[i])] = outcome.scope_peak_bytes[i].count;
  json["host_bytes"] = outcome.host_bytes.count;
  json["step_ns"] = outcome.step_ns.count;
  json["bound_ns"] = outcome.bound_ns.count;
  json["compute_ns"] = outcome.compute_ns.count;
  json["offload_bytes"] = outcome.offload_bytes.count;
  json["prefetch_bytes"] = outcome.prefetch_bytes.count;
  json["cache"] = {{"hits", outcome.cache.hits},
                   {"misses", outcome.cache.misses},
                   {"evictions", outcome.cache.evictions},
                   {"clean_evictions", outcome.cache.clean_evictions}};
  json["recompute_runs"] = outcome.recompute_runs;
  json["recompute_ns"] = outcome.recompute_ns.count;
  for (std::size_t i = 0; i < kCauseNames.size(); ++i)
    json["stall_ns"][std::string(kCauseNames[i])] = outcome.stall_ns[i].count;
  if (outcome.slower_choices > 0) {
    json["slower_choices"] = outcome.slower_choices;
    json["slower_choices_ns"] = outcome.slower_choices_ns.count;
  }
  for (const WorkspaceRow& row : outcome.workspaces) json["workspaces"].push_back(json_of(row));
  if (outcome.measured_step_ns) json["measured_step_ns"] = outcome.measured_step_ns->count;
  if (outcome.measured_peak_bytes) {
    json["used_peak_bytes"] = outcome.used_peak_bytes.count;
    json["measured_peak_bytes"] = outcome.measured_peak_bytes->count;
  }
  if (outcome.outside_bytes) json["outside_bytes"] = outcome.outside_bytes->count;
  if (outcome.equal) json["equal"] = *outcome.equal;
  put(json, "time_refused", outcome.time_refused);
  if (!outcome.losses.empty()) json["losses"] = outcome.losses;
  if (!outcome.reference_losses.empty()) json["reference_losses"] = outcome.reference_losses;
  put(json, "data", outcome.data);
  if (outcome.test_images > 0) {
    json["test_images"] = outcome.test_images;
    json["test_correct"] = outcome.test_correct;
    json["test_accuracy"] =
        static_cast<double>(outcome.test_correct) / static_cast<double>(outcome.test_images);
  }
  put(json, "scaled_from", outcome.scaled_from);
  return json;
}

Json json_of(const Refusal& refusal) {
  Json json = {{"policy", refusal.policy},
               {"trace", refusal.trace},
               {"trace_hash", refusal.trace_hash},
               {"budget_bytes", refusal.budget_bytes.count}};
  if (refusal.smallest_budget_bytes.count > 0)
    json["smallest_budget_bytes"] = refusal.smallest_budget_bytes.count;
  put(json, "floor_op", refusal.floor_op);
  put(json, "reason", refusal.reason);
  if (refusal.failed) json["failed"] = true;
  return json;
}

Json json_of(const BoundRow& bound) {
  Json json = {{"name", bound.name}, {"trace", bound.trace}, {"trace_hash", bound.trace_hash}};
  if (bound.bytes.count > 0) json["bytes"] = bound.bytes.count;
  if (bound.step_ns.count > 0) json["step_ns"] = bound.step_ns.count;
  put(json, "note", bound.note);
  return json;
}

}  // namespace

std::string align(const std::vector<std::vector<std::string>>& rows, std::size_t text_columns) {
  std::vector<std::size_t> width;
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (width.size() <= i) width.push_back(0);
      width[i] = std::max(width[i], row[i].size());
    }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? "" : "  ";
      line += i < text_columns ? fmt::format("{:<{}}", row[i], width[i])
                               : fmt::format("{:>{}}", row[i], width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string format_outcome(const Outcome& outcome) {
  std::vector<Row> rows;
  const auto add = [&](std::string_view name, const std::string& value, const std::string& note) {
    rows.push_back({std::string(name), "", value, note});
  };
  add("budget", format_bytes(outcome.budget_bytes), "");
  add("live peak", format_bytes(outcome.live_peak_bytes), "");
  add("placed peak", format_bytes(outcome.placed_peak_bytes), outcome.allocator);
  if (outcome.reserved_peak_bytes) {
    add("allocated peak", format_bytes(*outcome.allocated_peak_bytes), "max_memory_allocated()");
    add("reserved peak", format_bytes(*outcome.reserved_peak_bytes),
        *outcome.reserved_peak_bytes > outcome.budget_bytes
            ? "max_memory_reserved(): PyTorch would run out of this budget"
            : "max_memory_reserved()");
  }
  for (std::size_t i = 0; i < kRoleNames.size(); ++i)
    if (outcome.scope_peak_bytes[i].count > 0)
      rows.push_back(
          {"  peak of", std::string(kRoleNames[i]), format_bytes(outcome.scope_peak_bytes[i]), ""});
  add("host pool", format_bytes(outcome.host_bytes), "");
  add("offload", format_bytes(outcome.offload_bytes), "");
  add("prefetch", format_bytes(outcome.prefetch_bytes), "");
  const CacheStats& cache = outcome.cache;
  add("misses", fmt::format("{}", cache.misses), fmt::format("{} hits", cache.hits));
  add("evictions", fmt::format("{}", cache.evictions),
      cache.clean_evictions > 0 ? fmt::format("{} no copy", cache.clean_evictions) : "");
  add("recompute", format_time(outcome.recompute_ns),
      fmt::format("{} runs", outcome.recompute_runs));
  const std::string over = ratio(outcome.step_ns, outcome.bound_ns);
  add("training step", format_time(outcome.step_ns), over.empty() ? "" : over + " x bound");
  add("  compute", format_time(outcome.compute_ns),
      percent(outcome.compute_ns.count, outcome.step_ns.count));
  if (outcome.slower_choices > 0)
    add("    of it slower choices", format_time(outcome.slower_choices_ns),
        fmt::format("{} ops", outcome.slower_choices));
  for (std::size_t i = 0; i < kCauseNames.size(); ++i)
    rows.push_back({"  lost to", std::string(kCauseNames[i]), format_time(outcome.stall_ns[i]),
                    percent(outcome.stall_ns[i].count, outcome.step_ns.count)});
  add("bound", format_time(outcome.bound_ns), "");
  const std::string scaled =
      outcome.scaled_from.empty() ? "" : ", op times scaled from " + outcome.scaled_from;
  return fmt::format("{} under {}{}\n{}", outcome.trace, outcome.policy, scaled, align(rows));
}

std::string format_replay(const Outcome& outcome) {
  const Bytes peak = outcome.measured_peak_bytes.value_or(Bytes{});
  const Nanoseconds step = outcome.measured_step_ns.value_or(Nanoseconds{});
  std::vector<Row> rows = {{"", "predicted", "measured", ""}};
  rows.push_back({"peak of the arena", format_bytes(outcome.used_peak_bytes), format_bytes(peak),
                  peak == outcome.used_peak_bytes ? "the same to the byte"
                  : outcome.guards
                      ? fmt::format("{:+} B of guards, which are no part of the budget",
                                    (peak - outcome.used_peak_bytes).count)
                      : fmt::format("{:+} B", (peak - outcome.used_peak_bytes).count)});
  const bool refused = !outcome.time_refused.empty();
  rows.push_back({"training step", refused ? "-" : format_time(outcome.step_ns), format_time(step),
                  refused ? "" : percent((outcome.step_ns - step).count, step.count) + " error"});
  rows.push_back(
      {"memory outside the arena", "-", format_bytes(outcome.outside_bytes.value_or(Bytes{})), ""});
  std::string text = fmt::format("{} under {}\n{}", outcome.trace, outcome.policy, align(rows, 1));
  if (refused) text += fmt::format("no time is predicted: {}\n", outcome.time_refused);
  return text;
}

std::string format_json(std::span<const Outcome> outcomes,
                        const std::map<std::string, std::string>& options,
                        std::span<const Refusal> refusals, std::span<const BoundRow> bounds) {
  Json json = {{"format", "superneurons-result"}, {"version", kReportVersion}};
  json["options"] = Json::object();
  for (const auto& [name, value] : options) json["options"][name] = value;
  json["outcomes"] = Json::array();
  for (const Outcome& outcome : outcomes) json["outcomes"].push_back(json_of(outcome));
  for (const Refusal& refusal : refusals) json["infeasible"].push_back(json_of(refusal));
  for (const BoundRow& bound : bounds) json["bounds"].push_back(json_of(bound));
  // Names may hold bytes that are not UTF-8; they are replaced rather than thrown at.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string format_refusal_json(const Error& error,
                                const std::map<std::string, std::string>& options) {
  Json json = {{"format", "superneurons-result"}, {"version", kReportVersion}};
  json["options"] = Json::object();
  for (const auto& [name, value] : options) json["options"][name] = value;
  json["outcomes"] = Json::array();
  json["error"] = error.message;
  if (error.shortage) {
    const Shortage& shortage = *error.shortage;
    if (shortage.smallest_budget.count > 0) json["floor_bytes"] = shortage.smallest_budget.count;
    if (shortage.short_by.count > 0) json["short_bytes"] = shortage.short_by.count;
    put(json, "op", shortage.op);
  }
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace superneurons
