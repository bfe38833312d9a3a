#include "cli/show_liveness.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/files.h"
#include "ir/live_sets.h"
#include "memory/layer_steps.h"
#include "policies/peak_law.h"

namespace superneurons {
namespace {

using Json = nlohmann::ordered_json;

Error unknown_role(const std::string& name) {
  std::string known;
  for (const std::string_view role : kRoleNames) known += fmt::format("{}, ", role);
  return {ErrorCode::bad_usage,
          fmt::format("--roles: no role '{}' ({}or all, or paper: activations and their gradients)",
                      name, known)};
}

std::string_view phase_of(const Trace& trace, const LiveStep& step) {
  return kPhaseNames[static_cast<std::size_t>(trace[step.ops.first].phase)];
}

/// What the step is called: its layer, or its op.
const std::string& name_of(const Trace& trace, const LiveStep& step, bool by_layer) {
  const Op& op = trace[step.ops.first];
  return by_layer && !op.layer.empty() ? op.layer : op.name;
}

/// The youngest tensors of the set by name.
std::string set_text(const Trace& trace, const std::set<TensorId>& live, std::uint32_t names) {
  if (live.empty()) return "{}";
  const std::size_t shown = std::min<std::size_t>(live.size(), names);
  std::string text;
  if (shown < live.size()) text = fmt::format("({} more)", live.size() - shown);
  for (auto id = std::prev(live.end(), static_cast<std::ptrdiff_t>(shown)); id != live.end(); ++id)
    text += (text.empty() ? "" : " ") + trace[*id].name;
  return text;
}

void print_table(const Trace& trace, const LiveSets& sets, const LivenessOptions& options,
                 Console& console) {
  const bool by_layer = options.by == "layer";
  std::size_t width = 5;
  for (const LiveStep& step : sets.steps)
    width = std::max(width, name_of(trace, step, by_layer).size());
  console.print(fmt::format("\n{:>10} {:<{}} {:<8} {:>10} {:>10} {:>10} {:>7} in -> out\n",
                            by_layer ? "layer step" : "op step", by_layer ? "layer" : "op", width,
                            "phase", "in", "peak", "out", "tensors"));
  LiveSet live(sets);
  std::string before = set_text(trace, live.tensors(), options.names);
  std::string chunk;  // of rows: a long table is not held in memory
  for (std::size_t i = 0; i < sets.steps.size(); ++i) {
    const LiveStep& step = sets.steps[i];
    live.pass(step);
    std::string after = set_text(trace, live.tensors(), options.names);
    chunk += fmt::format("{:>10} {:<{}} {:<8} {:>10} {:>10} {:>10} {:>7} {} -> {}\n", i + 1,
                         name_of(trace, step, by_layer), width, phase_of(trace, step),
                         format_bytes(step.in), format_bytes(step.peak), format_bytes(step.out),
                         step.tensors, before, after);
    before = std::move(after);
    if (chunk.size() < (std::size_t{1} << 16)) continue;
    console.print(chunk);
    chunk.clear();
  }
  console.print(chunk);
}

Json names_of(const Trace& trace, const std::vector<TensorId>& ids) {
  Json names = Json::array();
  for (const TensorId id : ids) names.push_back(trace[id].name);
  return names;
}

Json json_of(const Trace& trace, const LiveSets& sets, const LivenessOptions& options) {
  Json steps = Json::array();
  for (std::size_t i = 0; i < sets.steps.size(); ++i) {
    const LiveStep& step = sets.steps[i];
    steps.push_back({{"step", i + 1},
                     {"first_op", step.ops.first.index},
                     {"ops", step.ops.end.index - step.ops.first.index},
                     {"layer", trace[step.ops.first].layer},
                     {"phase", phase_of(trace, step)},
                     {"in_bytes", step.in.count},
                     {"peak_bytes", step.peak.count},
                     {"out_bytes", step.out.count},
                     {"tensors", step.tensors},
                     {"born", names_of(trace, step.born)},
                     {"died", names_of(trace, step.died)}});
  }
  const bool empty = sets.steps.empty();
  return {{"by", options.by},
          {"roles", options.roles},
          {"at_start", names_of(trace, sets.at_start)},
          {"steps", std::move(steps)},
          {"peak_step", empty ? 0 : sets.peak_step + 1},
          {"peak_bytes", empty ? 0 : sets.steps[sets.peak_step].peak.count}};
}

/// How far the paper's claim is from what holds (policies/peak_law.h).
Json show_peak_law(const Trace& trace, const Dataflow& flow, Console& console) {
  constexpr std::uint32_t kLookahead = 3;  // layer steps, as figure 10b of the paper shows
  const PeakLaw law = peak_law(trace, flow, kLookahead);
  console.print(fmt::format(
      "the paper claims that no more is needed than by the largest layer: {} at {}\n"
      "recomputing all cheap outputs and offloading all others needs at most {} more: {} held or "
      "made again at {}; with look-ahead {}, {} prefetched and {} waiting at {}\n",
      format_bytes(law.layer), trace[law.layer_op].name, format_bytes(law.bound() - law.layer),
      format_bytes(law.step - law.layer), trace[law.step_op].name, kLookahead,
      format_bytes(law.prefetched), format_bytes(law.waiting), trace[law.apart_op].name));
  return {{"layer_bytes", law.layer.count},      {"step_bytes", law.step.count},
          {"lookahead_layer_steps", kLookahead}, {"prefetched_bytes", law.prefetched.count},
          {"waiting_bytes", law.waiting.count},  {"bound_bytes", law.bound().count}};
}

}  // namespace

void add_liveness_options(cli::Command& command, LivenessOptions& options) {
  auto* wanted =
      command.add_flag("--liveness", options.wanted, "what is live before and after every step");
  command.add_option("--by", options.by, "a step is a layer in one phase, or an op")
      ->one_of({"layer", "op"})
      ->capture_default_str()
      ->needs(wanted);
  command
      .add_option("--roles", options.roles,
                  "tensors that count: roles with commas, all, or paper (activations and their "
                  "gradients)")
      ->capture_default_str()
      ->needs(wanted);
  command.add_option("--names", options.names, "most names to print of a set, the youngest")
      ->within(0, 1'000'000)
      ->capture_default_str()
      ->needs(wanted);
}

Result<std::vector<Role>> liveness_roles(const LivenessOptions& options) {
  const std::string& text = options.roles;
  if (text == "all") return std::vector<Role>(kAllRoles.begin(), kAllRoles.end());
  if (text == "paper") return std::vector<Role>(kPaperScope.begin(), kPaperScope.end());
  std::vector<Role> roles;
  for (const std::string& name : split_list(text)) {
    const auto* const role = std::find(kRoleNames.begin(), kRoleNames.end(), name);
    if (role == kRoleNames.end()) return unknown_role(name);
    roles.push_back(static_cast<Role>(role - kRoleNames.begin()));
  }
  return roles;
}

Json show_liveness(const Trace& trace, const LivenessOptions& options, std::span<const Role> roles,
                   bool json, const Session& session) {
  const std::vector<OpRange> steps = options.by == "op" ? op_steps(trace) : layer_steps(trace);
  const Dataflow flow = analyze(trace);
  const LiveSets sets = live_sets(trace, flow, steps, roles);
  print_table(trace, sets, options, session.console);
  if (!sets.steps.empty()) {
    const LiveStep& peak = sets.steps[sets.peak_step];
    session.console.print(fmt::format(
        "live peak: {} ({} B) in {} tensors at {} step {}, {} {}\n", format_bytes(peak.peak),
        peak.peak.count, peak.tensors, options.by, sets.peak_step + 1,
        name_of(trace, peak, options.by == "layer"), phase_of(trace, peak)));
  }
  Json result = json ? json_of(trace, sets, options) : Json{};
  if (trace.lowering == "paper" && !trace.ops.empty())
    result["peak_law"] = show_peak_law(trace, flow, session.console);
  return result;
}

}  // namespace superneurons
