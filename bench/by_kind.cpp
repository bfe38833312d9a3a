#include "bench/by_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace superneurons {
namespace {

constexpr std::size_t kWorst = 8;

struct Sum {
  std::int64_t runs = 0, bytes = 0;
  Nanoseconds recorded{}, predicted{}, measured{};
};

/// One command with its predicted and its measured time.
struct Pair {
  const Command* command = nullptr;
  Span predicted, measured;
};

std::vector<Pair> pairs_of(const Evaluation& predicted, const Measured& measured) {
  const std::vector<Command>& commands = predicted.program.commands;
  std::vector<Pair> pairs(commands.size());
  for (const Span& span : predicted.timeline.spans)
    if (span.command < pairs.size()) pairs[span.command].predicted = span;
  for (const Span& span : measured.spans)
    if (span.command < pairs.size()) pairs[span.command].measured = span;
  for (std::size_t i = 0; i < commands.size(); ++i) pairs[i].command = &commands[i];
  return pairs;
}

Nanoseconds length(const Span& span) { return span.end - span.start; }

std::string kind_of(const Trace& trace, const Command& command) {
  switch (command.kind) {
    case CommandKind::run:
      return trace.ops[command.subject].kind + (command.rerun ? " again" : "");
    case CommandKind::copy_out:
      return "offload";
    case CommandKind::copy_in:
      return "prefetch";
    case CommandKind::poison:
      break;
  }
  return "poison";
}

Row row_of(const Sum& sum) {
  Row row{{"runs", sum.runs}};
  if (sum.bytes > 0) row["bytes"] = sum.bytes;
  row["recorded_ns"] = sum.recorded.count;
  row["predicted_ns"] = sum.predicted.count;
  row["measured_ns"] = sum.measured.count;
  return row;
}

/// What the compute stream does nothing in, up to its last kernel.
Nanoseconds idle(const std::vector<Pair>& pairs, Span Pair::*which) {
  Nanoseconds idle{}, end{};
  for (const Pair& pair : pairs) {
    if (pair.command->stream != Stream::compute) continue;
    idle += std::max((pair.*which).start - end, 0_ns);
    end = std::max(end, (pair.*which).end);
  }
  return idle;
}

Row worst_ops(const Trace& trace, std::vector<Pair> pairs) {
  std::erase_if(pairs, [](const Pair& pair) { return pair.command->kind != CommandKind::run; });
  const auto miss = [](const Pair& pair) {
    return std::abs((length(pair.measured) - length(pair.predicted)).count);
  };
  const std::size_t some = std::min(kWorst, pairs.size());
  std::partial_sort(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(some), pairs.end(),
                    [&](const Pair& a, const Pair& b) { return miss(a) > miss(b); });
  Row rows = Row::array();
  for (std::size_t i = 0; i < some; ++i) {
    const Command& command = *pairs[i].command;
    const Op& op = trace.ops[command.subject];
    const Choice& choice = op.choices[command.choice];
    rows.push_back({{"op", op.name + (command.rerun ? " again" : "")},
                    {"algorithm", choice.algorithm},
                    {"workspace", choice.workspace.count},
                    {"recorded_ns", choice.ns.count},
                    {"predicted_ns", length(pairs[i].predicted).count},
                    {"measured_ns", length(pairs[i].measured).count}});
  }
  return rows;
}

}  // namespace

void add_by_kind(Row& row, const Trace& trace, const DeviceProfile& profile,
                 const Evaluation& predicted, const Measured& measured) {
  if (measured.spans.empty() || predicted.timeline.spans.empty()) return;
  const std::vector<Pair> pairs = pairs_of(predicted, measured);
  std::map<std::string, Sum> sums;
  for (const Pair& pair : pairs) {
    const Command& command = *pair.command;
    Sum& sum = sums[kind_of(trace, command)];
    ++sum.runs;
    sum.predicted += length(pair.predicted);
    sum.measured += length(pair.measured);
    if (command.kind == CommandKind::run) {
      sum.recorded += trace.ops[command.subject].choices[command.choice].ns;
    } else if (command.kind != CommandKind::poison) {
      const Bytes bytes = trace.tensors[command.subject].bytes;
      sum.bytes += bytes.count;
      sum.recorded += transfer_time(
          command.kind == CommandKind::copy_out ? profile.offload : profile.prefetch, bytes);
    }
  }
  for (const auto& [kind, sum] : sums) row["by_kind"][kind] = row_of(sum);
  row["by_kind"]["idle"] = {{"predicted_ns", idle(pairs, &Pair::predicted).count},
                            {"measured_ns", idle(pairs, &Pair::measured).count}};
  row["worst_ops"] = worst_ops(trace, pairs);
  row["timed_step_ns"] = measured.steps.empty() ? 0 : measured.steps.back().count;
}

std::string spans_csv(const Trace& trace, const Evaluation& predicted, const Measured& measured) {
  std::string text =
      "stream,name,bytes,predicted_start,predicted_end,measured_start,measured_end\n";
  for (const Pair& pair : pairs_of(predicted, measured)) {
    const Command& command = *pair.command;
    const bool op = command.kind == CommandKind::run;
    text += fmt::format(
        "{},{},{},{},{},{},{}\n", kStreamNames[static_cast<std::size_t>(command.stream)],
        op ? trace.ops[command.subject].name : trace.tensors[command.subject].name,
        op ? 0 : trace.tensors[command.subject].bytes.count, pair.predicted.start.count,
        pair.predicted.end.count, pair.measured.start.count, pair.measured.end.count);
  }
  return text;
}

}  // namespace superneurons
