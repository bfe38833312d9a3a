// compare T...: policies × budgets, the bounds, and the winner under each budget.
#include <fmt/format.h>

#include <memory>

#include "cli/session.h"
#include "ir/files.h"
#include "memory/placement.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

struct Options {
  Target target;
  std::vector<std::string> traces;
  std::vector<std::string> policies;
  std::vector<std::string> budgets{"100%", "80%", "60%"};
  std::string json;
};

struct Cell {
  std::string policy;
  Error error;
};

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policies()) names.emplace_back(entry.name);
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  return names;
}

/// Whether a policy's refusal is an answer about this cell rather than a mistake of the call.
bool is_answer(const Error& error) {
  return error.code == ErrorCode::does_not_fit || error.code == ErrorCode::bad_usage;
}

/// Appends the outcomes of one trace under one budget and prints who wins.
Status compare_cell(const Loaded& loaded, const Options& options, const std::string& budget_text,
                    const Session& session, std::vector<Outcome>& all) {
  const auto budget = budget_of(options.target, loaded, budget_text);
  if (!budget) return budget.error();
  std::vector<Outcome> rows;
  std::vector<Cell> refused;
  const Predict predict = predictor(loaded.trace, loaded.profile);
  for (const std::string& policy : options.policies) {
    if (session.stop) return Error{.code = ErrorCode::cancelled, .message = "interrupted"};
    print_progress(fmt::format("{} {} {}", loaded.trace.name, budget_text, policy));
    const auto plan = make_plan(loaded.trace, loaded.profile,
                                {.policy = policy,
                                 .budget = *budget,
                                 .allocator = options.target.allocator,
                                 .stop = &session.stop},
                                predict);
    if (!plan && !is_answer(plan.error())) return plan.error();
    if (!plan) {
      refused.push_back({policy, plan.error()});
      continue;
    }
    auto outcome = evaluate(loaded.trace, *plan, loaded.profile);
    if (!outcome) return outcome.error();
    rows.push_back(std::move(*outcome));
  }
  fmt::print("\n{}, budget {} = {}\n", loaded.trace.name, budget_text,
             format_bytes(budget->device));
  if (!rows.empty()) fmt::print("{}", format_table(rows));
  for (const Cell& cell : refused) fmt::print("{:<28} {}\n", cell.policy, cell.error.message);
  const auto best = std::min_element(
      rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.step_ns < b.step_ns; });
  if (best != rows.end())
    fmt::print("winner: {} with {} ({:.3f} of the lower bound)\n", best->policy,
               format_time(best->step_ns),
               static_cast<double>(best->step_ns.count) /
                   static_cast<double>(std::max<std::int64_t>(best->bound_ns.count, 1)));
  all.insert(all.end(), rows.begin(), rows.end());
  return Ok{};
}

Status compare(Options options, const Session& session) {
  if (options.policies.empty()) options.policies = all_policies();
  std::vector<Outcome> outcomes;
  for (const std::string& file : options.traces) {
    options.target.trace = file;
    const auto loaded = load(options.target);
    if (!loaded) return loaded.error();
    OpId largest;
    const Bytes floor = largest_working_set(loaded->trace, &largest);
    fmt::print("{}: largest working set {} at {}: no plan goes below\n", loaded->trace.name,
               format_bytes(floor), loaded->trace[largest].name);
    for (const std::string& budget : options.budgets)
      if (Status status = compare_cell(*loaded, options, budget, session, outcomes); !status)
        return status;
  }
  return write_json(options.json, format_json(outcomes, {{"command", session.command_line}}));
}

}  // namespace

void add_compare_command(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, session, "compare", "compare policies on traces under budgets",
                              [options, &session] { return compare(*options, session); });
  command->add_option("traces", options->traces, "trace files")->required();
  command->add_option("--policies", options->policies, "default: all of `superneurons policies`")
      ->delimiter(',');
  command->add_option("--budgets", options->budgets, "e.g. 12GiB,60%")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--device,--profile", options->target.profile, "device profile")
      ->capture_default_str();
  command->add_option("--host-budget", options->target.host_budget, "pinned host memory");
  command
      ->add_option("--allocator", options->target.allocator, "how ranges are placed in the arena")
      ->capture_default_str();
  command->add_option("--scale-bytes", options->target.scale, "divide all sizes, e.g. 1/1024")
      ->capture_default_str();
  command->add_option("--json", options->json, "result to write");
}

}  // namespace superneurons
