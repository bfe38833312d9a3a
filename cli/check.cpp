// check T [--plan PLAN]: is it lawful, and does it give back what its recording measured?
#include "ir/check.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/session.h"
#include "ir/files.h"
#include "ir/trace_io.h"
#include "memory/placement.h"
#include "simulator/report.h"
#include "tracer/quality.h"

namespace superneurons {
namespace {

using Json = nlohmann::ordered_json;

struct Options {
  Target target;
  PlanSource source;
  std::string json;
};

Json head() { return {{"format", "superneurons-check"}, {"version", kReportVersion}}; }

/// A file that is no lawful trace.
Json json_of(const std::string& file, const Error& error) {
  Json json = head();
  json["file"] = file;
  json["lawful"] = false;
  json["line"] = error.line;
  json["detail"] = error.message;
  return json;
}

Json json_of(const std::string& file, const Trace& trace, const Quality& quality) {
  Json json = head();
  json["file"] = file;
  json["lawful"] = true;
  json["trace"] = trace.name;
  json["trace_hash"] = trace_hash(trace);
  json["ops"] = trace.ops.size();
  json["tensors"] = trace.tensors.size();
  json["carried"] = trace.carry.size();
  json["dropped_records"] = trace.dropped_records;
  json["rebuilt_peak_bytes"] = quality.rebuilt_peak.count;
  json["rebuilt_peak_op"] = quality.peak_op;
  if (quality.peak_error) {
    json["allocated_peak_bytes"] = trace.allocated_peak.count;
    json["peak_error"] = *quality.peak_error;
  }
  if (trace.reserved_peak > 0_B) json["reserved_peak_bytes"] = trace.reserved_peak.count;
  if (quality.owned) {
    json["owned_share"] = *quality.owned;
    json["owned_ns"] = trace.owned_ns.count;
    json["orphan_ns"] = trace.orphan_ns.count;
    json["orphans"] = trace.orphans;
  }
  if (trace.step_ns_untraced > 0_ns) json["step_ns_untraced"] = trace.step_ns_untraced.count;
  if (trace.step_ns_traced > 0_ns) json["step_ns_traced"] = trace.step_ns_traced.count;
  json["doubts"] = quality.doubts;
  return json;
}

/// What the recording measured beside what the trace gives back; nothing where it says nothing.
void print(const Trace& trace, const Quality& quality, Console& console) {
  if (quality.peak_error)
    console.print(fmt::format(
        "  rebuilt peak {} at {}, the program's allocator {} ({:+.2f} %){}\n",
        format_bytes(quality.rebuilt_peak), quality.peak_op, format_bytes(trace.allocated_peak),
        100 * *quality.peak_error,
        trace.reserved_peak > 0_B ? ", which held " + format_bytes(trace.reserved_peak) : ""));
  if (quality.owned)
    console.print(
        fmt::format("  device time of ops {:.2f} %; of none {} in {} kernels and copies\n",
                    100 * *quality.owned, format_time(trace.orphan_ns), trace.orphans));
  if (trace.step_ns_untraced > 0_ns && trace.step_ns_traced > 0_ns)
    console.print(fmt::format("  training step {} untraced, {} traced ({:.2f}x)\n",
                              format_time(trace.step_ns_untraced),
                              format_time(trace.step_ns_traced),
                              static_cast<double>(trace.step_ns_traced.count) /
                                  static_cast<double>(trace.step_ns_untraced.count)));
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

std::string text_of(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status check_files(const Options& options, const Session& session) {
  const EndsAtOnce at_once(session);
  const auto trace = load_trace(options.target);
  if (!trace) {
    if (trace.error().code == ErrorCode::bad_input)
      if (Status written =
              write_json(options.json, text_of(json_of(options.target.trace, trace.error())));
          !written)
        return written;
    return trace.error();
  }
  const Quality quality = quality_of(*trace);
  session.console.print(
      fmt::format("{}: lawful trace, {} ops, {} tensors, {} carried, {} dropped records\n",
                  options.target.trace, trace->ops.size(), trace->tensors.size(),
                  trace->carry.size(), trace->dropped_records));
  print(*trace, quality, session.console);
  for (const std::string& doubt : quality.doubts) session.console.note(doubt);
  Json json = json_of(options.target.trace, *trace, quality);
  Status status = Ok{};
  if (!options.source.plan_file.empty())
    status = check_plan(*trace, options, json, session.console);
  // What was found is written whatever it is; an unreadable plan is no finding.
  if (status || json.contains("plan"))
    if (Status written = write_json(options.json, text_of(json)); !written) return written;
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
