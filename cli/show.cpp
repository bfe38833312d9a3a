// show T: what is in a trace.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/session.h"
#include "cli/show_liveness.h"
#include "ir/files.h"
#include "ir/trace_io.h"
#include "memory/placement.h"
#include "networks/shares.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  Target target;
  std::string json;
  bool ops = false;
  bool tensors = false;
  bool by_kind = false;
  LivenessOptions liveness;
};

struct RoleRow {
  std::int64_t tensors = 0;
  Bytes bytes{};
};
std::map<std::string_view, RoleRow> roles_of(const Trace& trace) {
  std::map<std::string_view, RoleRow> rows;
  for (const Tensor& tensor : trace.tensors) {
    RoleRow& row = rows[kRoleNames[static_cast<std::size_t>(tensor.role)]];
    ++row.tensors;
    row.bytes += tensor.bytes;
  }
  return rows;
}

struct KindRow {
  std::int64_t ops = 0;
  Nanoseconds ns{};
  Bytes workspace{};         // largest
  Nanoseconds forward_ns{};  // of its ops of the forward phase
  Bytes made{};              // by those: activations and what else backward needs
};

Bytes made_for_backward(const Trace& trace, const Op& op) {
  Bytes made{};
  for (const Access& write : op.writes) {
    const Role role = trace[write.tensor].role;
    if (role == Role::activation || role == Role::saved) made += write.length;
  }
  return made;
}

std::map<std::string, KindRow> kinds_of(const Trace& trace) {
  std::map<std::string, KindRow> rows;
  for (const Op& op : trace.ops) {
    KindRow& row = rows[op.kind];
    const Choice& choice = op.choices[op.recorded];
    ++row.ops;
    row.ns += choice.ns;
    row.workspace = std::max(row.workspace, choice.workspace);
    if (op.phase != Phase::forward) continue;
    row.forward_ns += choice.ns;
    row.made += made_for_backward(trace, op);
  }
  return rows;
}

std::string header_text(const Trace& trace, const std::string& hash) {
  std::string text = fmt::format("{}: {} ops, {} tensors, {}{}, lowering {}, hash {}\n", trace.name,
                                 trace.ops.size(), trace.tensors.size(), batch_text(trace),
                                 trace.math, trace.lowering, hash);
  text += fmt::format("origin: {}\ndevice: {}\n", trace.origin,
                      trace.device.empty() ? "none" : trace.device);
  if (trace.step_ns_untraced.count > 0)
    text += fmt::format("training step: {} untraced, {} traced\n",
                        format_time(trace.step_ns_untraced), format_time(trace.step_ns_traced));
  text += "facts:";
  for (std::size_t i = 0; i < kFactNames.size(); ++i)
    text += fmt::format(" {}={}", kFactNames[i],
                        kCapabilityNames[static_cast<std::size_t>(trace.capabilities[i])]);
  return text + "\n";
}

std::string roles_text(const Trace& trace) {
  std::string text = fmt::format("\n{:<20} {:>8} {:>12}\n", "role", "tensors", "bytes");
  for (const auto& [role, row] : roles_of(trace))
    text += fmt::format("{:<20} {:>8} {:>12}\n", role, row.tensors, format_bytes(row.bytes));
  return text;
}

std::string kinds_text(const Trace& trace) {
  const auto rows = kinds_of(trace);
  Nanoseconds total{};
  for (const auto& [kind, row] : rows) total += row.ns;
  std::string text = fmt::format("\n{:<32} {:>6} {:>12} {:>7} {:>14}\n", "kind", "ops", "time",
                                 "share", "max workspace");
  for (const auto& [kind, row] : rows)
    text += fmt::format(
        "{:<32} {:>6} {:>12} {:>6.1f}% {:>14}\n", kind, row.ops, format_time(row.ns),
        total.count ? 100.0 * static_cast<double>(row.ns.count) / static_cast<double>(total.count)
                    : 0.0,
        format_bytes(row.workspace));
  return text;
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }
double real(Bytes bytes) { return static_cast<double>(bytes.count); }
double real(Nanoseconds ns) { return static_cast<double>(ns.count); }

std::string shares_text(const Trace& trace) {
  const std::vector<LayerShare> shares = layer_shares(trace);
  LayerShare all;
  for (const LayerShare& share : shares) {
    all.forward += share.time();
    all.activations += share.memory();
  }
  std::string text = fmt::format(
      "\n{:<16} {:>6} {:>6} {:>10} {:>10} {:>7} {:>10} {:>12} {:>7} {:>12}\n", "layer", "layers",
      "ops", "forward", "backward", "share", "update", "memory", "share", "parameters");
  for (const LayerShare& share : shares)
    text += fmt::format(
        "{:<16} {:>6} {:>6} {:>10} {:>10} {:>6.1f}% {:>10} {:>12} {:>6.1f}% {:>12}\n", share.kind,
        share.layers, share.ops, format_time(share.forward), format_time(share.backward),
        percent(real(share.time()), real(all.forward)), format_time(share.update),
        format_bytes(share.memory()), percent(real(share.memory()), real(all.activations)),
        format_bytes(share.parameters));
  return text + "time: share of forward and backward; memory: activations and their gradients\n";
}

Json shares_json(const Trace& trace) {
  Json rows = Json::array();
  for (const LayerShare& share : layer_shares(trace))
    rows.push_back({{"kind", share.kind},
                    {"layers", share.layers},
                    {"ops", share.ops},
                    {"forward_ns", share.forward.count},
                    {"backward_ns", share.backward.count},
                    {"update_ns", share.update.count},
                    {"activation_bytes", share.activations.count},
                    {"gradient_bytes", share.gradients.count},
                    {"saved_bytes", share.saved.count},
                    {"parameter_bytes", share.parameters.count}});
  return rows;
}

std::string ops_text(const Trace& trace) {
  std::string text = fmt::format("\n{:>6} {:<40} {:<9} {:>10} {:>12} {}\n", "op", "name", "phase",
                                 "time", "workspace", "reads -> writes");
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    std::string operands;
    for (const Access& read : op.reads) operands += trace[read.tensor].name + " ";
    operands += "->";
    for (const Access& write : op.writes) operands += " " + trace[write.tensor].name;
    const Choice& choice = op.choices[op.recorded];
    text += fmt::format("{:>6} {:<40} {:<9} {:>10} {:>12} {}\n", i, op.name,
                        kPhaseNames[static_cast<std::size_t>(op.phase)], format_time(choice.ns),
                        format_bytes(choice.workspace), operands);
  }
  return text;
}

std::string tensors_text(const Trace& trace) {
  std::string text =
      fmt::format("\n{:>6} {:<40} {:<20} {:>12} {}\n", "tensor", "name", "role", "bytes", "layer");
  for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
    const Tensor& tensor = trace.tensors[i];
    text += fmt::format("{:>6} {:<40} {:<20} {:>12} {}\n", i, tensor.name,
                        kRoleNames[static_cast<std::size_t>(tensor.role)],
                        format_bytes(tensor.bytes), tensor.layer);
  }
  return text;
}

Json json_of(const Trace& trace, const std::string& hash, Bytes largest,
             const std::string& largest_op, bool by_kind) {
  Json json = {{"format", "superneurons-show"},
               {"version", kReportVersion},
               {"trace", trace.name},
               {"trace_hash", hash},
               {"origin", trace.origin},
               {"device", trace.device},
               {"lowering", trace.lowering},
               {"network", trace.network},
               {"batch", trace.batch},
               {"math", trace.math},
               {"step_ns_untraced", trace.step_ns_untraced.count},
               {"step_ns_traced", trace.step_ns_traced.count},
               {"dropped_records", trace.dropped_records},
               {"ops", trace.ops.size()},
               {"tensors", trace.tensors.size()},
               {"largest_working_set_bytes", largest.count},
               {"largest_working_set_op", largest_op}};
  for (std::size_t i = 0; i < kFactNames.size(); ++i)
    json["facts"][std::string(kFactNames[i])] =
        kCapabilityNames[static_cast<std::size_t>(trace.capabilities[i])];
  for (const auto& [role, row] : roles_of(trace))
    json["roles"][std::string(role)] = {{"tensors", row.tensors}, {"bytes", row.bytes.count}};
  for (const auto& [kind, row] : kinds_of(trace))
    json["kinds"][kind] = {{"ops", row.ops},
                           {"ns", row.ns.count},
                           {"max_workspace_bytes", row.workspace.count},
                           {"forward_ns", row.forward_ns.count},
                           {"forward_made_bytes", row.made.count}};
  if (by_kind) json["layer_kinds"] = shares_json(trace);
  return json;
}

/// With --device as that device would run it.
Result<Loaded> load_shown(const Target& target, const Session& session) {
  if (!target.profile.empty()) return load(target, session);
  auto trace = load_trace(target);
  if (!trace) return trace.error();
  return Loaded{.trace = std::move(*trace)};
}

Status show(const Options& options, const Session& session) {
  const EndsAtOnce at_once(session);
  const auto roles = liveness_roles(options.liveness);
  if (!roles) return roles.error();
  const auto loaded = load_shown(options.target, session);
  if (!loaded) return loaded.error();
  const Trace& trace = loaded->trace;
  OpId op;
  const Bytes largest = largest_working_set(trace, &op);
  const std::string largest_op = trace.ops.empty() ? "" : trace[op].name;
  Console& console = session.console;
  const std::string hash = hash_of(*loaded);
  console.print(header_text(trace, hash) + roles_text(trace) + kinds_text(trace));
  console.print(fmt::format("\nlargest working set: {} at {}: no plan goes below\n",
                            format_bytes(largest), largest_op));
  if (options.by_kind) console.print(shares_text(trace));
  if (options.tensors) console.print(tensors_text(trace));
  if (options.ops) console.print(ops_text(trace));
  Json json = json_of(trace, hash, largest, largest_op, options.by_kind);
  if (options.liveness.wanted) {
    Json liveness = show_liveness(trace, options.liveness, *roles, !options.json.empty(), session);
    if (!options.json.empty()) json["liveness"] = std::move(liveness);
  }
  return write_json(options.json, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace

void add_show_command(cli::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, session, "show", "print what is in a trace",
                              "traces/alexnet-b128.jsonl.gz --ops",
                              [options, &session] { return show(*options, session); });
  add_trace_option(*command, options->target);
  command->add_option("--device", options->target.profile,
                      "scale the times to that device profile (`superneurons devices`)");
  command->add_flag("--ops", options->ops, "list every op");
  command->add_flag("--tensors", options->tensors, "list every tensor");
  command->add_flag("--by-kind", options->by_kind,
                    "time, memory and parameters of each kind of layer");
  add_liveness_options(*command, options->liveness);
  add_json_option(*command, options->json);
}

}  // namespace superneurons
