// explain T --policy P --budget B [--tensor X]: why a plan needs that memory and that time.
#include <fmt/format.h>

#include <memory>

#include "cli/session.h"
#include "ir/files.h"
#include "simulator/explanation.h"

namespace superneurons {
namespace {

struct Options {
  Target target;
  PlanSource source;
  std::string tensor;
  std::int64_t rows = 10;
  std::string json;
};

Result<std::optional<TensorId>> find_tensor(const Trace& trace, const std::string& name) {
  if (name.empty()) return std::optional<TensorId>();
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < trace.tensors.size(); ++i) {
    if (trace.tensors[i].name == name) return std::optional<TensorId>(TensorId{i});
    names.push_back(trace.tensors[i].name);
  }
  const std::string near = nearest_name(name, names);
  return Error{ErrorCode::bad_usage,
               fmt::format("--tensor {}: trace '{}' has no such tensor{}", name, trace.name,
                           near.empty() ? "" : fmt::format(" (did you mean {}?)", near))};
}

Status run(Options& options, const Session& session) {
  const auto loaded = load(options.target, session);
  if (!loaded) return loaded.error();
  const auto tensor = find_tensor(loaded->trace, options.tensor);
  if (!tensor) return tensor.error();
  options.source.explain = true;
  const auto plan = plan_from(options.source, options.target, *loaded, session);
  if (!plan) return plan.error();
  const auto evaluation = evaluate_in_full(loaded->trace, *plan, loaded->profile,
                                           {.keep_spans = true, .stop = &session.stop});
  if (!evaluation) return evaluation.error();
  const Explanation why = explain(loaded->trace, *plan, *evaluation);
  session.console.print(*tensor ? format_life(loaded->trace, *plan, **tensor,
                                              life_of(loaded->trace, *plan, *evaluation, **tensor))
                                : format_explanation(loaded->trace, *plan, *evaluation, why,
                                                     static_cast<std::size_t>(options.rows)));
  if (options.json.empty()) return Ok{};
  return write_json(options.json, format_explanation_json(loaded->trace, *plan, *evaluation, why,
                                                          session.options, *tensor));
}

}  // namespace

void add_explain_command(cli::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(
      app, session, "explain", "why a plan needs the memory and the time that it needs",
      "traces/resnet50-b64.jsonl.gz --policy superneurons_best --budget 60% --tensor conv1.out",
      [options, &session] { return with_refusal(run(*options, session), options->json, session); });
  add_trace_option(*command, options->target);
  add_plan_options(*command, options->source);
  add_budget_option(*command, options->target);
  add_setting_options(*command, options->target);
  command->add_option("--tensor", options->tensor,
                      "the life of this tensor, plan step by plan step, with the policy's reasons");
  command->add_option("--rows", options->rows, "rows of each list")
      ->within(1, 1000000)
      ->capture_default_str();
  add_json_option(*command, options->json);
}

}  // namespace superneurons
