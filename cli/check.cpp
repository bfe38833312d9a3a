// check T [--plan PLAN]: is it lawful?
#include "ir/check.h"

#include <fmt/format.h>

#include <memory>

#include "cli/session.h"
#include "ir/files.h"
#include "memory/placement.h"

namespace superneurons {
namespace {

struct Options {
  Target target;
  PlanSource source;
};

Status check_files(const Options& options, const Session& session) {
  const auto loaded = load(options.target);
  if (!loaded) return loaded.error();
  const Trace& trace = loaded->trace;
  fmt::print("{}: lawful trace, {} ops, {} tensors, {} carried, {} dropped records\n",
             options.target.trace, trace.ops.size(), trace.tensors.size(), trace.carry.size(),
             trace.dropped_records);
  if (options.source.plan_file.empty()) return Ok{};
  const auto plan = plan_from(options.source, options.target, *loaded, session);
  if (!plan) return plan.error();
  if (const auto violation = check(trace, *plan)) {
    Error error = to_error(*violation);
    error.file = options.source.plan_file;
    return error;
  }
  const auto placement = place(trace, *plan, plan->budget.device);
  if (!placement) return placement.error();
  fmt::print("{}: lawful plan, {} plan steps, live peak {}, placed peak {}, host {}\n",
             options.source.plan_file, plan->steps.size(), format_bytes(placement->live_peak),
             format_bytes(placement->placed_peak), format_bytes(placement->host_peak));
  return Ok{};
}

}  // namespace

void add_check_command(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, session, "check", "prove a trace, and a plan for it, lawful",
                              [options, &session] { return check_files(*options, session); });
  add_target_options(*command, options->target);
  command->add_option("--plan", options->source.plan_file, "plan to check");
}

}  // namespace superneurons
