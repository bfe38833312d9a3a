// check T [--plan PLAN]: is it lawful?
#include "ir/check.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/session.h"
#include "ir/files.h"
#include "ir/trace_io.h"
#include "memory/placement.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  Target target;
  PlanSource source;
  std::string json;
};

Json json_of(const Trace& trace) {
  return {{"format", "superneurons-check"},
          {"version", kReportVersion},
          {"trace", trace.name},
          {"trace_hash", trace_hash(trace)}};
}

/// "plan": {"file","lawful"} and, if it is not, the law broken and where.
Json json_of(const std::string& file, const std::optional<Violation>& violation) {
  Json json = {{"file", file}, {"lawful", !violation}};
  if (!violation) return json;
  json["law"] = kLawNames[static_cast<std::size_t>(violation->law)];
  json["plan_step"] = violation->step;
  json["op"] = violation->op;
  json["tensor"] = violation->tensor;
  json["detail"] = violation->detail;
  return json;
}

Error in_plan(Error error, const std::string& file) {
  error.file = file;
  return error;
}

/// Checks and places the plan; `json` gets what was found.
Status check_plan(const Trace& trace, const Options& options, Json& json, Console& console) {
  const std::string& file = options.source.plan_file;
  const auto plan = read_plan_for(trace_hash(trace), options.source, options.target);
  if (!plan) return plan.error();
  const auto violation = check(trace, *plan);
  json["plan"] = json_of(file, violation);
  if (violation) return in_plan(to_error(*violation), file);
  const auto placement = place(trace, *plan, plan->budget.device);
  json["plan"]["places"] = static_cast<bool>(placement);
  if (!placement) return in_plan(placement.error(), file);
  json["plan"]["live_peak_bytes"] = placement->live_peak.count;
  json["plan"]["placed_peak_bytes"] = placement->placed_peak.count;
  json["plan"]["host_bytes"] = placement->host_peak.count;
  console.print(fmt::format(
      "{}: lawful plan, {} plan steps, live peak {}, placed peak {} of {}, host {}\n", file,
      plan->steps.size(), format_bytes(placement->live_peak), format_bytes(placement->placed_peak),
      format_bytes(plan->budget.device), format_bytes(placement->host_peak)));
  return Ok{};
}

Status check_files(const Options& options, const Session& session) {
  const auto trace = load_trace(options.target);
  if (!trace) return trace.error();
  session.console.print(
      fmt::format("{}: lawful trace, {} ops, {} tensors, {} carried, {} dropped records\n",
                  options.target.trace, trace->ops.size(), trace->tensors.size(),
                  trace->carry.size(), trace->dropped_records));
  Json json = json_of(*trace);
  Status status = Ok{};
  if (!options.source.plan_file.empty())
    status = check_plan(*trace, options, json, session.console);
  // What was found is written whatever it is; an unreadable plan is no finding.
  if (status || json.contains("plan"))
    if (Status written = write_json(
            options.json, json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
        !written)
      return written;
  return status;
}

}  // namespace

void add_check_command(cli::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, session, "check", "prove a trace, and a plan for it, lawful",
                              "traces/resnet50-b64.jsonl.gz --plan p.jsonl",
                              [options, &session] { return check_files(*options, session); });
  add_trace_option(*command, options->target);
  command->add_option("--plan", options->source.plan_file, "plan to check");
  command
      ->add_option("--scale-bytes", options->target.scale,
                   "sizes were divided when the plan was made, e.g. 1/1024")
      ->capture_default_str();
  add_json_option(*command, options->json);
}

}  // namespace superneurons
