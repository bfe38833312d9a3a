// simulate T: what a plan would cost: peak, time, stalls by cause, traffic, recompute.
#include <fmt/format.h>

#include <memory>

#include "cli/session.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

struct Options {
  Target target;
  PlanSource source;
  std::string json;
  std::string timeline;
  std::string memory;
  std::string layer_steps;
  std::string clock = "replay";
  bool workspaces = false;
};

Status write_timeline(const Options& options, const Loaded& loaded, const Plan& plan,
                      const Evaluation& evaluation) {
  if (options.timeline.empty()) return Ok{};
  return write_json(options.timeline, format_chrome_trace(loaded.trace, plan, evaluation.program,
                                                          evaluation.timeline));
}

Status run(const Options& options, const Session& session) {
  const auto loaded = load(options.target, session);
  if (!loaded) return loaded.error();
  const auto plan = plan_from(options.source, options.target, *loaded, session);
  if (!plan) return plan.error();
  if (options.clock == "program" && loaded->trace.capability(Fact::host_times) == Capability::none)
    return Error{ErrorCode::bad_usage,
                 fmt::format("--clock program needs to know host_times, which trace '{}' does not "
                             "tell",
                             loaded->trace.name)};
  const Clock clock = options.clock == "program" ? Clock::program : Clock::replay;
  auto evaluation = evaluate_in_full(
      loaded->trace, *plan, loaded->profile,
      {.clock = clock, .keep_spans = !options.timeline.empty(), .stop = &session.stop});
  if (!evaluation) return evaluation.error();
  Outcome outcome = evaluation->outcome;
  outcome.scaled_from = loaded->scaled_from;
  session.console.print(format_outcome(outcome));
  if (options.workspaces) {
    outcome.workspaces = workspaces_of(loaded->trace, *plan);
    session.console.print(fmt::format("\n{}", format_workspaces(outcome.workspaces)));
  }
  if (Status status = write_timeline(options, *loaded, *plan, *evaluation); !status) return status;
  if (!options.memory.empty())
    if (Status status = write_json(options.memory, format_memory_json(loaded->trace, *plan));
        !status)
      return status;
  if (!options.layer_steps.empty())
    if (Status status =
            write_json(options.layer_steps, format_layer_steps_json(loaded->trace, *plan));
        !status)
      return status;
  return write_json(options.json, format_json({&outcome, 1}, session.options));
}

}  // namespace

void add_simulate_command(cli::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(
      app, session, "simulate", "predict peak, time and traffic of a plan",
      "traces/resnet50-b64.jsonl.gz --policy liveness_offload --budget 60%",
      [options, &session] { return with_refusal(run(*options, session), options->json, session); });
  add_trace_option(*command, options->target);
  add_plan_options(*command, options->source);
  add_budget_option(*command, options->target);
  add_setting_options(*command, options->target);
  command
      ->add_option("--clock", options->clock,
                   "replay: what our driver takes; program: what the traced program would take "
                   "with the plan, by its own host times")
      ->one_of({"replay", "program"})
      ->capture_default_str();
  command->add_flag("--workspaces", options->workspaces,
                    "workspace assigned to each op that has several choices, beside what its "
                    "fastest wants, and the time that this costs");
  add_json_option(*command, options->json);
  add_output_option(*command, "--timeline", options->timeline,
                    "timeline to write, for https://ui.perfetto.dev");
  add_output_option(*command, "--memory", options->memory,
                    "memory over plan steps to write (JSON)");
  add_output_option(*command, "--layer-steps", options->layer_steps,
                    "activations and their gradients over layer steps to write (JSON)");
}

}  // namespace superneurons
