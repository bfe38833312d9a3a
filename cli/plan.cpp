// plan T --policy P --budget B: the plan as text.
#include <fmt/format.h>

#include <memory>

#include "cli/session.h"
#include "ir/plan_io.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

struct Options {
  Target target;
  PlanSource source;
  std::string output;
  std::string json;
};

Status plan(const Options& options, const Session& session) {
  const auto loaded = load(options.target, session);
  if (!loaded) return loaded.error();
  const auto made = plan_from(options.source, options.target, *loaded, session);
  if (!made) return made.error();
  if (!options.json.empty()) {
    const auto outcome = evaluate(loaded->trace, *made, loaded->profile, {.stop = &session.stop});
    if (!outcome) return outcome.error();
    Status written = write_json(options.json, format_json({&*outcome, 1}, session.options));
    if (!written) return written;
  }
  if (!options.output.empty()) return write_plan(*made, options.output);
  session.console.print(format_plan(*made));
  return Ok{};
}

}  // namespace

void add_plan_command(cli::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command =
      add_command(app, session, "plan", "make a plan and print it or write it to a file",
                  "traces/resnet50-b64.jsonl.gz --policy offload_recompute --budget 60% -o p.jsonl",
                  [options, &session] {
                    return with_refusal(plan(*options, session), options->json, session);
                  });
  add_trace_option(*command, options->target);
  add_budget_option(*command, options->target);
  command->add_option("--policy", options->source.policy, "see `superneurons policies`")
      ->required();
  add_setting_options(*command, options->target);
  add_output_option(*command, "-o,--output", options->output,
                    "plan to write (default: standard output)");
  add_json_option(*command, options->json);
  command->add_flag("--explain", options->source.explain, "add a sentence per decision");
}

}  // namespace superneurons
