#include "simulator/explanation.h"

#include <fmt/format.h>

#include <algorithm>

#include "memory/schedule.h"

namespace superneurons {
namespace {

bool touches(const Op& op, TensorId tensor) {
  const auto it = [&](const Access& access) { return access.tensor == tensor; };
  return std::any_of(op.reads.begin(), op.reads.end(), it) ||
         std::any_of(op.writes.begin(), op.writes.end(), it);
}

std::optional<OpId> next_use(const Trace& trace, const Plan& plan, std::uint32_t after,
                             TensorId tensor) {
  for (std::size_t i = after + 1; i < plan.steps.size(); ++i)
    if (plan.steps[i].kind == StepKind::run && touches(trace[plan.steps[i].op()], tensor))
      return plan.steps[i].op();
  return std::nullopt;
}

/// Requests that hold a device range while plan step `at` runs.
std::vector<std::uint32_t> alive_at(const Schedule& plan, std::uint32_t at) {
  std::vector<bool> alive(plan.requests.size(), false);
  for (std::uint32_t i = 0; i < plan.homes; ++i) alive[i] = true;
  for (std::size_t i = 0; i < plan.ready[at]; ++i)
    alive[plan.events[i].request] = plan.events[i].taken;
  std::vector<std::uint32_t> found;
  for (std::uint32_t i = 0; i < alive.size(); ++i) {
    const Allocation& allocation = plan.requests[i].allocation;
    if (alive[i] && allocation.space == Space::device && allocation.use == Use::tensor &&
        plan.requests[i].home == kNoHome)
      found.push_back(i);
  }
  return found;
}

std::string name_of(const Trace& trace, const Command& command) {
  if (command.kind == CommandKind::run) return trace.ops[command.subject].name;
  return fmt::format("{} of {}", kStreamNames[static_cast<std::size_t>(command.stream)],
                     trace.tensors[command.subject].name);
}

/// By command: when it ran.
std::vector<const Span*> spans_of(const Evaluation& evaluation) {
  std::vector<const Span*> spans(evaluation.program.commands.size(), nullptr);
  for (const Span& span : evaluation.timeline.spans) spans[span.command] = &span;
  return spans;
}

/// By event: the command that records it.
std::vector<std::uint32_t> recorders_of(const Program& program) {
  std::vector<std::uint32_t> recorders(program.events, 0);
  for (std::uint32_t i = 0; i < program.commands.size(); ++i)
    if (program.commands[i].event >= 0)
      recorders[static_cast<std::size_t>(program.commands[i].event)] = i;
  return recorders;
}

/// What the command waited for longest, after `from`.
void blame(const Trace& trace, const Program& program, const std::vector<const Span*>& spans,
           const std::vector<std::uint32_t>& recorders, const Span& span, Nanoseconds from,
           Loss& loss) {
  Nanoseconds latest = from;
  for (std::uint32_t i = program.steady.first[span.command];
       i < program.steady.first[span.command + 1]; ++i) {
    const Wait& wait = program.steady.waits[i];
    const std::uint32_t source = recorders[wait.event];
    // One that comes later in the program is of the training step before.
    if (source >= span.command || spans[source] == nullptr || spans[source]->end <= latest)
      continue;
    latest = spans[source]->end;
    loss.cause = wait.cause;
    loss.waited_for = name_of(trace, program.commands[source]);
  }
}

std::vector<Loss> losses_of(const Trace& trace, const Evaluation& evaluation) {
  const Program& program = evaluation.program;
  const std::vector<const Span*> spans = spans_of(evaluation);
  const std::vector<std::uint32_t> recorders = recorders_of(program);
  const Nanoseconds least{evaluation.outcome.step_ns.count / 100};
  std::vector<Loss> losses;
  Nanoseconds free_from{};
  for (const Span& span : evaluation.timeline.spans) {
    const Command& command = program.commands[span.command];
    if (command.kind != CommandKind::run) continue;
    Loss loss{command.plan_step, span.start - free_from, Cause::gap, ""};
    blame(trace, program, spans, recorders, span, free_from, loss);
    free_from = span.end;
    if (loss.lost.count > 0 && (loss.cause != Cause::gap || loss.lost >= least))
      losses.push_back(loss);
    const Nanoseconds slowed =
        span.end - span.start - trace.ops[command.subject].choices[command.choice].ns;
    if (slowed >= least && slowed.count > 0)
      losses.push_back({command.plan_step, slowed, Cause::interference, ""});
  }
  std::stable_sort(losses.begin(), losses.end(),
                   [](const Loss& a, const Loss& b) { return a.lost > b.lost; });
  return losses;
}

std::string what_step_does(const Trace& trace, const PlanStep& step, TensorId tensor, bool again) {
  if (step.kind != StepKind::run)
    return std::string(kStepKindNames[static_cast<std::size_t>(step.kind)]);
  const Op& op = trace[step.op()];
  const auto it = [&](const Access& access) { return access.tensor == tensor; };
  const bool reads = std::any_of(op.reads.begin(), op.reads.end(), it);
  const bool writes = std::any_of(op.writes.begin(), op.writes.end(), it);
  const bool discards =
      std::find(step.discard.begin(), step.discard.end(), tensor) != step.discard.end();
  std::string_view verb = reads && writes ? "updated by" : writes ? "written by" : "read by";
  if (discards) verb = "discarded by";
  return fmt::format("{} {}{}", verb, op.name, again ? " again" : "");
}

}  // namespace

Explanation explain(const Trace& trace, const Plan& plan, const Evaluation& evaluation) {
  const Schedule taken = schedule(trace, plan, {.residency = true});
  Explanation result;
  result.peak_step = taken.live_peak_step;
  result.peak = taken.live_peak;
  result.losses = losses_of(trace, evaluation);
  if (plan.steps.empty()) return result;
  result.workspace = taken.residency[taken.live_peak_step].workspace;
  const PlanStep& step = plan.steps[taken.live_peak_step];
  for (const std::uint32_t i : alive_at(taken, taken.live_peak_step)) {
    const TensorId tensor = taken.requests[i].allocation.tensor;
    result.residents.push_back({tensor, trace[tensor].bytes,
                                step.kind == StepKind::run && touches(trace[step.op()], tensor),
                                i < taken.homes, taken.requests[i].step,
                                next_use(trace, plan, taken.live_peak_step, tensor)});
  }
  std::stable_sort(result.residents.begin(), result.residents.end(),
                   [](const Resident& a, const Resident& b) { return a.bytes > b.bytes; });
  return result;
}

std::vector<LifeEvent> life_of(const Trace& trace, const Plan& plan, const Evaluation& evaluation,
                               TensorId tensor) {
  std::vector<const Span*> span_of(plan.steps.size(), nullptr);
  for (const Span& span : evaluation.timeline.spans) {
    const Command& command = evaluation.program.commands[span.command];
    if (command.kind != CommandKind::poison) span_of[command.plan_step] = &span;
  }
  std::vector<LifeEvent> events;
  std::vector<bool> ran(trace.ops.size(), false);
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    const bool run = step.kind == StepKind::run;
    if (run ? !touches(trace[step.op()], tensor) : step.tensor() != tensor) continue;
    LifeEvent event{i, what_step_does(trace, step, tensor, run && ran[step.subject]), {}, {}};
    if (run) ran[step.subject] = true;
    if (span_of[i] != nullptr) event.span = *span_of[i];
    for (const Reason& reason : plan.reasons)
      if (reason.step == i && (!run || reason.text.find(trace[tensor].name) != std::string::npos))
        event.whys.push_back(reason.text);
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace superneurons
