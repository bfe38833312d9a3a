#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "memory/layer_steps.h"
#include "memory/placement.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

using Json = nlohmann::ordered_json;

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string name_of(const Trace& trace, const Command& command) {
  switch (command.kind) {
    case CommandKind::run:
      return trace.ops[command.subject].name + (command.rerun ? " (rerun)" : "");
    case CommandKind::copy_out:
      return "offload " + trace.tensors[command.subject].name;
    case CommandKind::copy_in:
      return "prefetch " + trace.tensors[command.subject].name;
    case CommandKind::poison:
      break;
  }
  return "poison " + trace.tensors[command.subject].name;
}

double microseconds(Nanoseconds ns) { return static_cast<double>(ns.count) / 1000; }

class ChromeTrace {
 public:
  ChromeTrace(const Trace& trace, const Plan& plan, const Program& program,
              const Timeline& timeline)
      : trace_(trace), plan_(plan), program_(program), timeline_(timeline) {}

  Json build() {
    events_.push_back(meta("process_name", 0, trace_.name + " / " + plan_.policy));
    for (std::size_t i = 0; i < kStreamNames.size(); ++i)
      events_.push_back(meta("thread_name", i, std::string(kStreamNames[i])));
    const std::vector<std::uint32_t> recorder = recorders();
    for (const Span& span : timeline_.spans) add_span(span, recorder);
    add_counters();
    Json lost;
    for (std::size_t i = 0; i < kCauseNames.size(); ++i)
      lost[std::string(kCauseNames[i])] = timeline_.stall_ns[i].count;
    return {{"displayTimeUnit", "ms"},
            {"otherData",
             {{"trace", trace_.name},
              {"trace_hash", plan_.trace_hash},
              {"policy", plan_.policy},
              {"step_ns", timeline_.step_ns.count},
              {"compute_ns", timeline_.compute_ns.count},
              {"stall_ns", std::move(lost)}}},
            {"traceEvents", std::move(events_)}};
  }

 private:
  static Json meta(const char* what, std::size_t thread, const std::string& name) {
    return {{"ph", "M"}, {"pid", 1}, {"tid", thread}, {"name", what}, {"args", {{"name", name}}}};
  }

  /// By event: the command that records it.
  std::vector<std::uint32_t> recorders() const {
    std::vector<std::uint32_t> result(program_.events, 0);
    for (std::uint32_t i = 0; i < program_.commands.size(); ++i)
      if (program_.commands[i].event >= 0)
        result[static_cast<std::size_t>(program_.commands[i].event)] = i;
    return result;
  }

  void add_span(const Span& span, const std::vector<std::uint32_t>& recorder) {
    const Command& command = program_.commands[span.command];
    const auto stream = static_cast<std::size_t>(command.stream);
    Json args = {{"plan_step", command.plan_step}};
    if (command.kind == CommandKind::run) {
      const Op& op = trace_.ops[command.subject];
      const Choice& choice = op.choices[command.choice];
      args["phase"] = kPhaseNames[static_cast<std::size_t>(op.phase)];
      if (!choice.algorithm.empty()) args["algorithm"] = choice.algorithm;
      args["slowed_ns"] = (span.end - span.start - choice.ns).count;
    } else {
      args["bytes"] = trace_.tensors[command.subject].bytes.count;
    }
    if (idle_from_[stream]) args["idle_before_ns"] = (span.start - *idle_from_[stream]).count;
    idle_from_[stream] = span.end;
    for (std::uint32_t i = program_.steady.first[span.command];
         i < program_.steady.first[span.command + 1]; ++i) {
      const Wait& wait = program_.steady.waits[i];
      args["waits_for"].push_back(std::string(kCauseNames[static_cast<std::size_t>(wait.cause)]) +
                                  ": " + name_of(trace_, program_.commands[recorder[wait.event]]));
    }
    events_.push_back({{"ph", "X"},
                       {"pid", 1},
                       {"tid", stream},
                       {"name", name_of(trace_, command)},
                       {"cat", kStreamNames[stream]},
                       {"ts", microseconds(span.start)},
                       {"dur", microseconds(span.end - span.start)},
                       {"args", std::move(args)}});
  }

  /// Residency is a matter of plan order; it is shown at the times of the runs.
  void add_counters() {
    const std::vector<Residency> rows = residency(trace_, plan_);
    for (const Span& span : timeline_.spans) {
      const Command& command = program_.commands[span.command];
      if (command.kind != CommandKind::run || command.plan_step >= rows.size()) continue;
      const Residency& row = rows[command.plan_step];
      Json bytes;
      for (std::size_t i = 0; i < kRoleNames.size(); ++i)
        bytes[std::string(kRoleNames[i])] = row.by_role[i].count;
      bytes["workspace"] = row.workspace.count;
      events_.push_back({{"ph", "C"},
                         {"pid", 1},
                         {"name", "resident bytes"},
                         {"ts", microseconds(span.start)},
                         {"args", std::move(bytes)}});
    }
  }

  const Trace& trace_;
  const Plan& plan_;
  const Program& program_;
  const Timeline& timeline_;
  std::array<std::optional<Nanoseconds>, kStreamNames.size()> idle_from_;
  Json events_ = Json::array();
};

}  // namespace

std::string format_chrome_trace(const Trace& trace, const Plan& plan, const Program& program,
                                const Timeline& timeline) {
  return dump(ChromeTrace(trace, plan, program, timeline).build());
}

std::string format_memory_json(const Trace& trace, const Plan& plan) {
  Json kind = Json::array(), name = Json::array(), total = Json::array(), workspace = Json::array(),
       by_role = Json::object();
  const std::vector<Residency> rows = residency(trace, plan);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    kind.push_back(kStepKindNames[static_cast<std::size_t>(step.kind)]);
    name.push_back(step.kind == StepKind::run ? trace[step.op()].name : trace[step.tensor()].name);
    total.push_back(rows[i].total.count);
    workspace.push_back(rows[i].workspace.count);
    for (std::size_t role = 0; role < kRoleNames.size(); ++role)
      by_role[std::string(kRoleNames[role])].push_back(rows[i].by_role[role].count);
  }
  return dump({{"format", "superneurons-memory"},
               {"version", kReportVersion},
               {"trace", trace.name},
               {"trace_hash", plan.trace_hash},
               {"policy", plan.policy},
               {"allocator", plan.allocator},
               {"budget_bytes", plan.budget.device.count},
               {"kind", std::move(kind)},
               {"name", std::move(name)},
               {"total", std::move(total)},
               {"workspace", std::move(workspace)},
               {"by_role", std::move(by_role)}});
}

std::string format_layer_steps_json(const Trace& trace, const Plan& plan) {
  Json steps = Json::array();
  for (const LayerStep& step : layer_steps(trace, plan))
    steps.push_back({{"layer", step.layer},
                     {"phase", kPhaseNames[static_cast<std::size_t>(step.phase)]},
                     {"bytes", step.bytes.count},
                     {"tensors", step.tensors},
                     {"peak_bytes", step.peak.count}});
  Json scope = Json::array();
  for (const Role role : kPaperScope) scope.push_back(kRoleNames[static_cast<std::size_t>(role)]);
  return dump({{"format", "superneurons-layer-steps"},
               {"version", kReportVersion},
               {"trace", trace.name},
               {"trace_hash", plan.trace_hash},
               {"policy", plan.policy},
               {"scope", std::move(scope)},
               {"scope_peak_bytes", scope_peak(trace, plan).count},
               {"steps", std::move(steps)}});
}

}  // namespace superneurons
