#include "simulator/workspaces.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/choices.h"
#include "ir/files.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

std::string named(const std::string& algorithm) { return algorithm.empty() ? "-" : algorithm; }

std::string bytes_or_dash(Bytes bytes) { return bytes.count == 0 ? "-" : format_bytes(bytes); }

WorkspaceRow row_of(const Op& op, const Choice& taken) {
  const Choice& fastest = op.choices[choices_by_speed(op).front()];
  WorkspaceRow row{.op = op.name,
                   .choice = named(taken.algorithm),
                   .fastest = named(fastest.algorithm),
                   .assigned = taken.workspace,
                   .wanted = fastest.workspace,
                   .ns = taken.ns};
  // A choice in another math mode, or one that is not deterministic, may be faster still.
  if (taken.ns > fastest.ns && fastest.ns > 0_ns) row.lost = taken.ns - fastest.ns;
  return row;
}

}  // namespace

std::vector<WorkspaceRow> workspaces_of(const Trace& trace, const Plan& plan) {
  constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<std::size_t> row_of_op(trace.ops.size(), kNone);
  std::vector<WorkspaceRow> rows;
  for (const PlanStep& step : plan.steps) {
    if (step.kind != StepKind::run) continue;
    const Op& op = trace[step.op()];
    if (op.choices.size() < 2) continue;
    std::size_t& row = row_of_op[step.subject];
    if (row == kNone) {
      row = rows.size();
      rows.push_back(row_of(op, op.choices[step.choice]));
    }
    ++rows[row].runs;
  }
  for (WorkspaceRow& row : rows)
    for (std::int64_t run = 1, once = row.lost.count; run < row.runs; ++run)
      row.lost = later(row.lost, {once});
  return rows;
}

Nanoseconds total_lost(std::span<const WorkspaceRow> rows) {
  Nanoseconds total{};
  for (const WorkspaceRow& row : rows) total = later(total, row.lost);
  return total;
}

std::string format_workspaces(std::span<const WorkspaceRow> rows) {
  if (rows.empty()) return "no op has more than one choice\n";
  std::vector<std::vector<std::string>> table = {
      {"op", "choice", "fastest", "assigned", "wanted", "runs", "time", "lost"}};
  Bytes assigned{}, wanted{};
  for (const WorkspaceRow& row : rows) {
    assigned = std::max(assigned, row.assigned);
    wanted = std::max(wanted, row.wanted);
    const bool same = row.choice == row.fastest && row.assigned == row.wanted;
    table.push_back({row.op, row.choice, same ? "the same" : row.fastest,
                     bytes_or_dash(row.assigned), bytes_or_dash(row.wanted),
                     std::to_string(row.runs), format_time(row.ns),
                     row.lost > 0_ns ? format_time(row.lost) : "-"});
  }
  table.push_back({"largest; all", "", "", bytes_or_dash(assigned), bytes_or_dash(wanted), "", "",
                   format_time(total_lost(rows))});
  return align(table, 3);
}

}  // namespace superneurons
