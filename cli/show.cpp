// show T: what is in a trace.
#include <fmt/format.h>

#include <map>
#include <memory>

#include "cli/session.h"
#include "ir/files.h"
#include "memory/placement.h"

namespace superneurons {
namespace {

struct Options {
  Target target;
  bool ops = false;
  bool tensors = false;
};

void show_header(const Trace& trace) {
  fmt::print("{}: {} ops, {} tensors, batch {}, {}, lowering {}\n", trace.name, trace.ops.size(),
             trace.tensors.size(), trace.batch, trace.math, trace.lowering);
  fmt::print("origin: {}\ndevice: {}\n", trace.origin,
             trace.device.empty() ? "none" : trace.device);
  if (trace.step_ns_untraced.count > 0)
    fmt::print("training step: {} untraced, {} traced\n", format_time(trace.step_ns_untraced),
               format_time(trace.step_ns_traced));
  fmt::print("facts:");
  for (std::size_t i = 0; i < kFactNames.size(); ++i)
    fmt::print(" {}={}", kFactNames[i],
               kCapabilityNames[static_cast<std::size_t>(trace.capabilities[i])]);
  fmt::print("\n");
}

void show_roles(const Trace& trace) {
  fmt::print("\n{:<20} {:>8} {:>12}\n", "role", "tensors", "bytes");
  for (std::size_t role = 0; role < kRoleNames.size(); ++role) {
    std::int64_t count = 0;
    Bytes bytes{};
    for (const Tensor& tensor : trace.tensors) {
      if (static_cast<std::size_t>(tensor.role) != role) continue;
      ++count;
      bytes += tensor.bytes;
    }
    if (count > 0)
      fmt::print("{:<20} {:>8} {:>12}\n", kRoleNames[role], count, format_bytes(bytes));
  }
}

void show_kinds(const Trace& trace) {
  struct Row {
    std::int64_t count = 0;
    Nanoseconds ns{};
    Bytes workspace{};
  };
  std::map<std::string, Row> rows;
  Nanoseconds total{};
  for (const Op& op : trace.ops) {
    Row& row = rows[op.kind];
    const Choice& choice = op.choices[op.recorded];
    ++row.count;
    row.ns += choice.ns;
    row.workspace = std::max(row.workspace, choice.workspace);
    total += choice.ns;
  }
  fmt::print("\n{:<32} {:>6} {:>12} {:>7} {:>14}\n", "kind", "ops", "time", "share",
             "max workspace");
  for (const auto& [kind, row] : rows)
    fmt::print("{:<32} {:>6} {:>12} {:>6.1f}% {:>14}\n", kind, row.count, format_time(row.ns),
               total.count
                   ? 100.0 * static_cast<double>(row.ns.count) / static_cast<double>(total.count)
                   : 0.0,
               format_bytes(row.workspace));
}

void show_ops(const Trace& trace) {
  fmt::print("\n{:>6} {:<40} {:<9} {:>10} {:>12} {}\n", "op", "name", "phase", "time", "workspace",
             "reads -> writes");
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    std::string operands;
    for (const Access& read : op.reads) operands += trace[read.tensor].name + " ";
    operands += "->";
    for (const Access& write : op.writes) operands += " " + trace[write.tensor].name;
    const Choice& choice = op.choices[op.recorded];
    fmt::print("{:>6} {:<40} {:<9} {:>10} {:>12} {}\n", i, op.name,
               kPhaseNames[static_cast<std::size_t>(op.phase)], format_time(choice.ns),
               format_bytes(choice.workspace), operands);
  }
}

void show_tensors(const Trace& trace) {
  fmt::print("\n{:>6} {:<40} {:<20} {:>12} {}\n", "tensor", "name", "role", "bytes", "layer");
  for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
    const Tensor& tensor = trace.tensors[i];
    fmt::print("{:>6} {:<40} {:<20} {:>12} {}\n", i, tensor.name,
               kRoleNames[static_cast<std::size_t>(tensor.role)], format_bytes(tensor.bytes),
               tensor.layer);
  }
}

Status show(const Options& options) {
  const auto loaded = load(options.target);
  if (!loaded) return loaded.error();
  const Trace& trace = loaded->trace;
  show_header(trace);
  show_roles(trace);
  show_kinds(trace);
  OpId largest;
  const Bytes floor = largest_working_set(trace, &largest);
  fmt::print("\nlargest working set: {} at {}: no plan goes below\n", format_bytes(floor),
             trace[largest].name);
  if (options.tensors) show_tensors(trace);
  if (options.ops) show_ops(trace);
  return Ok{};
}

}  // namespace

void add_show_command(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, session, "show", "print what is in a trace",
                              [options] { return show(*options); });
  add_target_options(*command, options->target, false);
  command->add_flag("--ops", options->ops, "list every op");
  command->add_flag("--tensors", options->tensors, "list every tensor");
}

}  // namespace superneurons
