// compare T...: policies × budgets, the bounds, and the winner under each budget.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/policy_list.h"
#include "cli/session.h"
#include "ir/files.h"
#include "ir/trace_io.h"
#include "memory/placement.h"
#include "policies/exec_policy.h"
#include "policies/request.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

struct Options {
  Target target;
  std::vector<std::string> traces;
  std::vector<std::string> policies;
  std::vector<std::string> budgets{"100%", "80%", "60%", "floor"};
  std::string json;
};

struct Comparison {
  std::vector<Outcome> outcomes;
  std::vector<Refusal> refusals;
  std::vector<BoundRow> bounds;
  std::size_t failures = 0;  // cells whose policy, a command, gave no lawful plan
  std::optional<Error> first_failure;
};

/// One trace with what does not depend on the budget.
struct Subject {
  Loaded loaded;
  std::string hash;
  std::map<std::string, Floor> floors;  // by policy; none for commands and for refused ones
  std::optional<Error> unsuited;        // the first refusal
};

using Rows = std::vector<std::vector<std::string>>;

std::string bytes_or_dash(Bytes bytes) { return bytes.count == 0 ? "-" : format_bytes(bytes); }
std::string time_or_dash(Nanoseconds ns) { return ns.count == 0 ? "-" : format_time(ns); }

std::vector<std::string> split_budgets(const std::vector<std::string>& arguments) {
  std::vector<std::string> budgets;
  for (const std::string& argument : arguments)
    for (std::string& piece : split_list(argument)) budgets.push_back(std::move(piece));
  return budgets;
}

PlanRequest request_for(const std::string& policy, Budget budget, const Options& options,
                        const Session& session) {
  return {.policy = policy,
          .budget = budget,
          .allocator = options.target.allocator,
          .stop = &session.stop};
}

Error interrupted() { return {.code = ErrorCode::cancelled, .message = "interrupted"}; }

/// The smallest budget of every policy; those that the trace does not suit are left out.
Status find_floors(Subject& subject, const Options& options, const Session& session) {
  const auto unlimited = budget_of(options.target, subject.loaded, "");
  if (!unlimited) return unlimited.error();
  const Trace& trace = subject.loaded.trace;
  for (const std::string& policy : options.policies) {
    if (session.stop) return interrupted();
    if (is_exec(policy)) continue;
    session.console.progress(fmt::format("{}: smallest budget of {}", trace.name, policy));
    const auto floor = smallest_budget(trace, subject.loaded.profile,
                                       request_for(policy, *unlimited, options, session),
                                       predictor(trace, subject.loaded.profile, &session.stop));
    if (floor) subject.floors[policy] = *floor;
    else if (floor.error().code != ErrorCode::bad_usage) return floor.error();
    else if (!subject.unsuited) subject.unsuited = floor.error();
  }
  return Ok{};
}

/// What simple policies take where nothing limits them.
void add_policy_bound(const Subject& subject, const Options& options, const std::string& policy,
                      const Session& session, Comparison& all) {
  const Trace& trace = subject.loaded.trace;
  const DeviceProfile& profile = subject.loaded.profile;
  const Budget endless{Bytes{std::int64_t{1} << 60}, profile.host_memory};
  BoundRow row{.trace = trace.name, .trace_hash = subject.hash, .name = policy};
  const auto plan = make_plan(trace, profile, request_for(policy, endless, options, session),
                              predictor(trace, profile, &session.stop));
  const auto outcome = plan ? evaluate(trace, *plan, profile) : Result<Outcome>(plan.error());
  if (outcome) {
    row.bytes = outcome->placed_peak_bytes;
    row.step_ns = outcome->step_ns;
    for (const PolicyEntry& entry : policies())
      if (entry.name == policy) row.note = entry.summary;
  } else {
    row.note = outcome.error().message;
  }
  all.bounds.push_back(row);
}

void add_bounds(const Subject& subject, const Options& options, const Session& session,
                Comparison& all) {
  const Trace& trace = subject.loaded.trace;
  const std::size_t first = all.bounds.size();
  for (const char* policy : {"keep_all", "recorded", "liveness"})
    add_policy_bound(subject, options, policy, session, all);
  OpId op;
  const Bytes largest = largest_working_set(trace, &op);
  all.bounds.push_back({.trace = trace.name,
                        .trace_hash = subject.hash,
                        .name = "largest_working_set",
                        .bytes = largest,
                        .note = fmt::format("no plan needs less: operands and smallest workspace "
                                            "of {}",
                                            trace.ops.empty() ? "nothing" : trace[op].name)});
  const Budget endless{Bytes{std::int64_t{1} << 60}, subject.loaded.profile.host_memory};
  all.bounds.push_back({.trace = trace.name,
                        .trace_hash = subject.hash,
                        .name = "time",
                        .step_ns = time_bound(trace, subject.loaded.profile, endless),
                        .note = "no plan is faster: every op once, at its fastest choice"});
  Rows rows = {{"bound", "memory", "time", ""}};
  for (std::size_t i = first; i < all.bounds.size(); ++i) {
    const BoundRow& row = all.bounds[i];
    rows.push_back({row.name, bytes_or_dash(row.bytes), time_or_dash(row.step_ns), ""});
  }
  // Notes are as long as they like, so that they are no column.
  const std::string text = align(rows, 1);
  std::size_t begin = 0;
  for (std::size_t line = 0; begin < text.size(); ++line) {
    const std::size_t end = text.find('\n', begin);
    const std::string note = line == 0 ? "" : "  " + all.bounds[first + line - 1].note;
    session.console.print(text.substr(begin, end - begin) + note + "\n");
    begin = end + 1;
  }
}

Refusal refusal_of(const Subject& subject, const std::string& policy, Budget budget,
                   const Error& error) {
  Refusal refusal{.policy = policy,
                  .trace = subject.loaded.trace.name,
                  .trace_hash = subject.hash,
                  .budget_bytes = budget.device,
                  .reason = error.message};
  if (error.code != ErrorCode::does_not_fit) return refusal;
  const auto floor = subject.floors.find(policy);
  if (floor != subject.floors.end()) {
    refusal.smallest_budget_bytes = floor->second.budget;
    refusal.floor_op = floor->second.op;
  } else if (error.shortage) {  // of a command, which is asked once
    refusal.smallest_budget_bytes = error.shortage->smallest_budget;
    refusal.floor_op = error.shortage->op;
  }
  return refusal;
}

/// Why a command gave no lawful plan, for its row.
Refusal failure_of(const Subject& subject, const std::string& policy, Budget budget,
                   const Error& error) {
  Refusal refusal = refusal_of(subject, policy, budget, error);
  refusal.failed = true;
  const std::string named =
      fmt::format("policy command '{}' ", policy.substr(policy.find(':') + 1));
  if (refusal.reason.starts_with(named)) refusal.reason.erase(0, named.size());
  if (policy.find(',') != std::string::npos)
    refusal.reason += " (a command takes the rest of a list, with its commas: name it last)";
  return refusal;
}

std::string refusal_text(const Refusal& refusal) {
  if (refusal.failed) return "no plan: " + refusal.reason;
  if (refusal.smallest_budget_bytes.count == 0) return refusal.reason;
  return fmt::format("does not fit: needs {} ({} B){}", format_bytes(refusal.smallest_budget_bytes),
                     refusal.smallest_budget_bytes.count,
                     refusal.floor_op.empty() ? "" : ", set by " + refusal.floor_op);
}

std::string share(std::int64_t part, std::int64_t whole) {
  if (whole <= 0) return "-";
  return fmt::format("{:.3f}", static_cast<double>(part) / static_cast<double>(whole));
}

std::string lost_time(const Outcome& outcome) {
  Nanoseconds total{};
  for (const Nanoseconds ns : outcome.stall_ns) total += ns;
  if (total.count <= 0) return "-";
  const auto largest = std::max_element(outcome.stall_ns.begin(), outcome.stall_ns.end());
  const auto cause = static_cast<std::size_t>(largest - outcome.stall_ns.begin());
  return fmt::format("{}, most to {}", format_time(total), kCauseNames[cause]);
}

std::string cell_text(const std::vector<Outcome>& outcomes, const std::vector<Refusal>& refusals,
                      Bytes keep_all) {
  Rows rows;
  const bool reserves = std::any_of(outcomes.begin(), outcomes.end(), [](const Outcome& row) {
    return row.reserved_peak_bytes.has_value();
  });
  if (!outcomes.empty())
    rows.push_back({"policy", "peak", "/ keep_all", "host", "time", "/ bound", "out", "in",
                    "recompute", "lost time"});
  if (!outcomes.empty() && reserves) rows.back().insert(rows.back().begin() + 2, "reserved");
  for (const Outcome& row : outcomes) {
    rows.push_back(
        {row.policy, format_bytes(row.placed_peak_bytes),
         share(row.placed_peak_bytes.count, keep_all.count), bytes_or_dash(row.host_bytes),
         format_time(row.step_ns), share(row.step_ns.count, row.bound_ns.count),
         bytes_or_dash(row.offload_bytes), bytes_or_dash(row.prefetch_bytes),
         row.recompute_runs == 0
             ? "-"
             : fmt::format("{} runs, {}", row.recompute_runs, format_time(row.recompute_ns)),
         lost_time(row)});
    if (reserves)
      rows.back().insert(rows.back().begin() + 2,
                         row.reserved_peak_bytes ? format_bytes(*row.reserved_peak_bytes) : "");
  }
  std::string text = align(rows, 1);
  std::size_t width = 0;
  for (const Refusal& refusal : refusals) width = std::max(width, refusal.policy.size());
  for (const Refusal& refusal : refusals)
    text += fmt::format("{:<{}}  {}\n", refusal.policy, width, refusal_text(refusal));
  return text;
}

/// The fastest, and of those the one with the smallest peak.
std::string winner_text(const std::vector<Outcome>& outcomes) {
  if (outcomes.empty()) return "no policy fits\n";
  const auto best =
      std::min_element(outcomes.begin(), outcomes.end(), [](const Outcome& a, const Outcome& b) {
        return std::pair(a.step_ns, a.placed_peak_bytes) <
               std::pair(b.step_ns, b.placed_peak_bytes);
      });
  return fmt::format("winner: {} with {}, {} of the time bound\n", best->policy,
                     format_time(best->step_ns), share(best->step_ns.count, best->bound_ns.count));
}

/// "floor": the smallest budget at which any of the policies fits.
Result<Budget> cell_budget(const Subject& subject, const Options& options,
                           const std::string& text) {
  if (text != "floor") return budget_of(options.target, subject.loaded, text);
  auto budget = budget_of(options.target, subject.loaded, "");
  if (!budget) return budget;
  if (subject.floors.empty())
    return Error{
        .code = ErrorCode::bad_usage,
        .message = "--budgets floor: " + (subject.unsuited ? subject.unsuited->message
                                                           : "the floor of commands is not known")};
  Bytes smallest = subject.floors.begin()->second.budget;
  for (const auto& [policy, floor] : subject.floors) smallest = std::min(smallest, floor.budget);
  budget->device = smallest;
  return budget;
}

bool is_refusal(const Error& error) {
  return error.code == ErrorCode::does_not_fit || error.code == ErrorCode::bad_usage;
}

/// Appends the outcomes of one trace under one budget and prints them with the winner.
Status compare_cell(const Subject& subject, const Options& options, const std::string& budget_text,
                    const Session& session, Comparison& all) {
  const Trace& trace = subject.loaded.trace;
  const DeviceProfile& profile = subject.loaded.profile;
  const auto budget = cell_budget(subject, options, budget_text);
  if (!budget) return budget.error();
  std::vector<Outcome> rows;
  std::vector<Refusal> refused;
  for (const std::string& policy : options.policies) {
    if (session.stop) return interrupted();
    session.console.progress(fmt::format("{}: {} at {}", trace.name, policy, budget_text));
    const auto plan = make_plan(trace, profile, request_for(policy, *budget, options, session),
                                predictor(trace, profile, &session.stop));
    auto outcome = plan ? evaluate(trace, *plan, profile) : Result<Outcome>(plan.error());
    // A refusal is an answer about this cell; names and options were checked before.
    if (!outcome && is_refusal(outcome.error())) {
      refused.push_back(refusal_of(subject, policy, *budget, outcome.error()));
      continue;
    }
    // What a command does wrong is its own affair, and not that of the other policies.
    if (!outcome && is_exec(policy) && outcome.error().code != ErrorCode::cancelled) {
      refused.push_back(failure_of(subject, policy, *budget, outcome.error()));
      if (all.failures++ == 0) all.first_failure = outcome.error();
      continue;
    }
    if (!outcome) return outcome.error();
    outcome->trace_hash = subject.hash;
    outcome->scaled_from = subject.loaded.scaled_from;
    rows.push_back(std::move(*outcome));
  }
  Bytes keep_all{};
  for (const BoundRow& bound : all.bounds)
    if (bound.trace_hash == subject.hash && bound.name == "keep_all") keep_all = bound.bytes;
  session.console.print(
      fmt::format("\nbudget {} = {}{}\n{}{}", budget_text, format_bytes(budget->device),
                  budget_text.ends_with('%') ? " (of the liveness peak)"
                  : budget_text == "floor"   ? fmt::format(" ({} B)", budget->device.count)
                                             : "",
                  cell_text(rows, refused, keep_all), winner_text(rows)));
  all.outcomes.insert(all.outcomes.end(), rows.begin(), rows.end());
  all.refusals.insert(all.refusals.end(), refused.begin(), refused.end());
  return Ok{};
}

Status compare_trace(const Options& options, const Session& session, Comparison& all) {
  auto loaded = load(options.target, session);
  if (!loaded) return loaded.error();
  Subject subject{.loaded = std::move(*loaded)};
  const Trace& trace = subject.loaded.trace;
  subject.hash = hash_of(subject.loaded);
  const bool measured = trace.capability(Fact::durations) == Capability::exact;
  // Several traces may have one name: that of the script they are of.
  const std::string from =
      options.traces.size() > 1 ? fmt::format(" ({})", options.target.trace) : "";
  session.console.print(fmt::format(
      "{}{}: {} ops, {}times {} {}\n\n", trace.name, from, trace.ops.size(), batch_text(trace),
      measured ? "measured on" : "estimated:", measured ? trace.device : trace.origin));
  if (Status status = find_floors(subject, options, session); !status) return status;
  add_bounds(subject, options, session, all);
  for (const std::string& budget : options.budgets)
    if (Status status = compare_cell(subject, options, budget, session, all); !status)
      return status;
  return Ok{};
}

/// A command is not asked for its smallest budget: where all policies are commands, nobody knows
/// it.
void leave_out_floor(Options& options, const Session& session) {
  if (!std::all_of(options.policies.begin(), options.policies.end(), is_exec)) return;
  const auto floors = std::count(options.budgets.begin(), options.budgets.end(), "floor");
  if (floors == 0 || floors == std::ssize(options.budgets)) return;
  std::erase(options.budgets, "floor");
  session.console.note("budget floor is left out: of commands it is not known");
}

/// Why there is no outcome at all.
Error nothing_fits(const Comparison& all) {
  const auto needs_more = [](const Refusal& refusal) {
    return refusal.failed || refusal.smallest_budget_bytes > 0_B;
  };
  if (!all.refusals.empty() && std::none_of(all.refusals.begin(), all.refusals.end(), needs_more))
    return {.code = ErrorCode::bad_usage,
            .message = fmt::format("no policy has a plan, whatever the budget: {}",
                                   all.refusals.front().reason)};
  return {.code = ErrorCode::does_not_fit,
          .message = "no policy fits any of the budgets (--budgets floor finds the smallest)"};
}

Status compare(Options options, const Session& session) {
  options.policies = options.policies.empty() ? all_policies() : split_policies(options.policies);
  if (Status status = known_policies(options.policies); !status) return status;
  if (Status status = can_be_read(options.traces); !status) return status;
  options.budgets = split_budgets(options.budgets);
  leave_out_floor(options, session);
  Comparison all;
  for (const std::string& file : options.traces) {
    if (&file != &options.traces.front()) session.console.print("\n");
    options.target.trace = file;
    if (Status status = compare_trace(options, session, all); !status) return status;
  }
  if (Status status = write_json(
          options.json, format_json(all.outcomes, session.options, all.refusals, all.bounds));
      !status)
    return status;
  if (all.first_failure)
    return Error{.code = all.first_failure->code,
                 .message = fmt::format("{} of {} cells have no plan because a command failed; the "
                                        "first: {}",
                                        all.failures, all.outcomes.size() + all.refusals.size(),
                                        all.first_failure->message)};
  if (!all.outcomes.empty()) return Ok{};
  return nothing_fits(all);
}

}  // namespace

void add_compare_command(cli::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, session, "compare", "compare policies on traces under budgets",
                              "traces/alexnet-b128.jsonl.gz --budgets 2GiB,90%,floor",
                              [options, &session] { return compare(*options, session); });
  command->add_option("traces", options->traces, "trace files")->required();
  command->add_option(
      "--policies", options->policies,
      "e.g. liveness,offload:need=all,exec:COMMAND; a command takes what follows, up to "
      "the next ,exec: (default: all of `superneurons policies`)");
  command
      ->add_option("--budgets", options->budgets,
                   "e.g. 12GiB,60%,floor; floor is the smallest at which any of them fits")
      ->capture_default_str();
  add_setting_options(*command, options->target);
  add_json_option(*command, options->json);
}

}  // namespace superneurons
