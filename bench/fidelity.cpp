// Fidelity: records networks, calibrates and replays in one process, and writes predicted beside
// measured for every policy and budget. Resumable: cells already in the result file are skipped.
//
//     superneurons_fidelity --out results [--networks alexnet:128,resnet50:64] [--part 1/2] [--on
//     cuda]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "bench/lab.h"
#include "ir/files.h"
#include "ir/trace_io.h"
#include "memory/allocator.h"
#include "memory/placement.h"
#include "policies/policy.h"
#include "replay/reference.h"
#include "replay/replay.h"
#include "simulator/model_backend.h"
#include "simulator/outcome.h"

namespace superneurons {
namespace {

struct Options {
  std::string out;
  std::vector<std::string> networks{"alexnet:128", "vgg16:64", "resnet50:64", "resnet152:32"};
  std::vector<std::string> policies;
  std::vector<std::string> budgets{"100", "80", "60", "floor"};
  std::string part = "1/1";
  std::string on = "cuda";
  int steps = 10;
  int warmup = 3;
  bool stress = false;
  bool spans = false;
};

/// One network ready to be replayed.
struct Subject {
  Trace trace;
  std::string hash;
  Bytes liveness_peak{};
  std::map<std::string, Checksums> references;  // by the choices taken
};

Result<Bytes> liveness_peak(const Trace& trace, const DeviceProfile& profile) {
  const auto plan = make_plan(trace, profile,
                              {.policy = "liveness", .budget = {Bytes{std::int64_t{1} << 60}, {}}},
                              predictor(trace, profile));
  if (!plan) return plan.error();
  return smallest_arena(trace, *plan);
}

std::string choices_key(const Plan& plan) {
  std::map<std::uint32_t, std::uint32_t> choice_of;
  for (const PlanStep& step : plan.steps)
    if (step.kind == StepKind::run) choice_of[step.subject] = step.choice;
  std::string key;
  for (const auto& [op, choice] : choice_of) key += fmt::format("{},", choice);
  return key;
}

Result<const Checksums*> reference(Subject& subject, const Plan& plan, const ReplayOptions& how) {
  const std::string key = choices_key(plan);
  if (const auto found = subject.references.find(key); found != subject.references.end())
    return &found->second;
  ReplayOptions plain = how;
  plain.stress = false;
  const auto run = run_reference(subject.trace, plan, plain);
  if (!run) return run.error();
  return &(subject.references[key] = run->run.checksums);
}

/// Every command's predicted and measured start and end, to find what a prediction misses.
Status write_spans(const Subject& subject, const DeviceProfile& profile, const Options& options,
                   const Plan& plan, const std::string& budget, const ReplayOptions& how) {
  const Trace& trace = subject.trace;
  const auto predicted = simulate(trace, plan, profile, {.keep_spans = true});
  if (!predicted) return predicted.error();
  const auto placement = place(trace, plan, plan.budget.device);
  if (!placement) return placement.error();
  const Program program = build_program(trace, plan, *placement);
  ReplayOptions timed = how;
  timed.keep_spans = true;
  const auto run = run_plan(trace, plan, timed);
  if (!run) return run.error();
  std::map<std::uint32_t, Span> measured;
  for (const Span& span : run->measured.spans) measured[span.command] = span;
  std::string text =
      "stream,name,bytes,predicted_start,predicted_end,measured_start,measured_end\n";
  for (const Span& span : predicted->spans) {
    const Command& command = program.commands[span.command];
    const bool op = command.kind == CommandKind::run;
    const Span& real = measured[span.command];
    text += fmt::format("{},{},{},{},{},{},{}\n",
                        kStreamNames[static_cast<std::size_t>(command.stream)],
                        op ? trace.ops[command.subject].name : trace.tensors[command.subject].name,
                        op ? 0 : trace.tensors[command.subject].bytes.count, span.start.count,
                        span.end.count, real.start.count, real.end.count);
  }
  std::string policy = plan.policy;
  std::replace(policy.begin(), policy.end(), ':', '_');
  return write_file(fmt::format("{}/spans-{}-{}-{}.csv", options.out, trace.name, policy, budget),
                    text);
}

Result<Plan> plan_of(const Subject& subject, const DeviceProfile& profile, const Row& row) {
  PlanRequest request{
      .policy = row["policy"],
      .budget = {Bytes{row["budget_bytes"].get<std::int64_t>()}, profile.host_memory}};
  const Predict predict = predictor(subject.trace, profile);
  auto plan = make_plan(subject.trace, profile, request, predict);
  if (plan || row["budget"] != "floor" || !plan.error().shortage) return plan;
  request.budget.device = plan.error().shortage->smallest_budget;
  if (request.budget.device.count == 0) return plan;
  return make_plan(subject.trace, profile, request, predict);
}

/// Fills the row with predicted, measured and equality.
Status run_cell(Subject& subject, const DeviceProfile& profile, const Options& options, Row& row) {
  const Trace& trace = subject.trace;
  auto plan = plan_of(subject, profile, row);
  if (!plan) return plan.error();
  row["budget_bytes"] = plan->budget.device.count;  // of a floor: what it came to
  const auto outcome = evaluate(trace, *plan, profile);
  if (!outcome) return outcome.error();
  plan->budget.device = outcome->placed_peak_bytes;
  const ReplayOptions how{.on_cuda = options.on == "cuda",
                          .training_steps = options.steps,
                          .warmup_steps = options.warmup,
                          .stress = options.stress};
  const auto begin = std::chrono::steady_clock::now();
  const auto run = run_plan(trace, *plan, how);
  if (!run) return run.error();
  add_measurement(row, run->measured, outcome->step_ns, options.warmup);
  add_prediction(row, *outcome);
  const auto expected = reference(subject, *plan, how);
  if (expected && !run->checksums.values.empty()) {
    row["difference"] = difference(trace, **expected, run->checksums);
    row["equal"] = row["difference"] == "";
  } else if (!expected && expected.error().code != ErrorCode::does_not_fit) {
    return expected.error();
  } else {  // the row says nothing of equality, so it does not hold
    row["difference"] = expected ? "nothing to compare" : expected.error().message;
  }
  if (options.spans)
    if (Status status = write_spans(subject, profile, options, *plan, row["budget"], how); !status)
      return status;
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  row["wall_s"] = std::round(wall.count() * 10) / 10;
  return Ok{};
}

std::string key_of(const Row& row) {
  return fmt::format("{} {} {}", row["trace_hash"].get<std::string>(),
                     row["policy"].get<std::string>(), row["budget"].get<std::string>());
}

/// Whether the cell holds: equal results and the predicted arena, or an honest "does not fit".
bool holds(const Row& row) {
  if (row.contains("error")) return row["answer"] == "does_not_fit";
  return row.value("equal", false) && row["measured_peak_bytes"] == row["used_peak_bytes"];
}

std::vector<std::string> policy_names(const Options& options) {
  if (!options.policies.empty()) return options.policies;
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policies()) names.emplace_back(entry.name);
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  return names;
}

Status run_subject(Subject& subject, const DeviceProfile& profile, const Options& options,
                   std::size_t& cell, std::size_t part, std::size_t parts, int& broken) {
  const std::string file = options.out + "/fidelity.jsonl";
  const auto done = finished_rows(file, key_of);
  const bool broken_off = !ends_with_newline(file);
  std::ofstream out(file, std::ios::app);
  if (broken_off) out << '\n';
  for (const std::string& policy : policy_names(options)) {
    for (const std::string& budget : options.budgets) {
      if (cell++ % parts != part) continue;
      Bytes bytes = kAllocationUnit;
      if (budget == "max") bytes = profile.device_memory;
      else if (budget != "floor") bytes = {subject.liveness_peak.count * std::stoll(budget) / 100};
      Row row{{"trace", subject.trace.name},
              {"trace_hash", subject.hash},
              {"policy", policy},
              {"budget", budget},
              {"budget_bytes", bytes.count}};
      if (done.count(key_of(row))) continue;
      if (const Status status = run_cell(subject, profile, options, row); !status) {
        row["error"] = status.error().message;
        row["answer"] = status.error().code == ErrorCode::does_not_fit ? "does_not_fit" : "failed";
      }
      broken += !holds(row);
      out << row.dump() << std::endl;
      say(row.dump());
    }
  }
  return Ok{};
}

Result<Trace> trace_of(const Lab& lab, const std::string& spec) {
  const auto colon = spec.rfind(':');
  if (colon == std::string::npos || std::atoll(spec.c_str() + colon + 1) < 1)
    return Error{.code = ErrorCode::bad_usage, .message = spec + " is not of the form NAME:BATCH"};
  return recorded_trace(lab, spec.substr(0, colon), std::atoll(spec.c_str() + colon + 1));
}

Status run_all(const Options& options) {
  std::filesystem::create_directories(options.out);
  const Lab lab{options.out, options.on, "superneurons_fidelity"};
  const auto profile = profile_of(lab);
  if (!profile) return profile.error();
  std::size_t part = 1, parts = 1, cell = 0;
  int broken = 0;
  if (std::sscanf(options.part.c_str(), "%zu/%zu", &part, &parts) != 2 || part < 1 || part > parts)
    return Error{.code = ErrorCode::bad_usage, .message = "--part is not of the form 1/2"};
  if (options.steps <= options.warmup || (options.on != "cuda" && options.on != "host"))
    return Error{.code = ErrorCode::bad_usage,
                 .message = "--steps must exceed --warmup, and --on is cuda or host"};
  for (const std::string& spec : options.networks) {
    auto trace = trace_of(lab, spec);
    if (!trace) return trace.error();
    Subject subject{.trace = std::move(*trace)};
    subject.hash = trace_hash(subject.trace);
    const auto peak = liveness_peak(subject.trace, *profile);
    if (!peak) return peak.error();
    subject.liveness_peak = *peak;
    if (Status status = run_subject(subject, *profile, options, cell, part - 1, parts, broken);
        !status)
      return status;
  }
  if (broken > 0)
    return Error{
        .code = ErrorCode::not_equal,
        .message = fmt::format("{} cells are not equal, missed their arena or failed", broken)};
  return Ok{};
}

}  // namespace
}  // namespace superneurons

int main(int argc, char** argv) {
  superneurons::Options options;
  CLI::App app{"predicted beside measured, for every network, policy and budget"};
  app.add_option("--out", options.out, "folder of results")->required();
  app.add_option("--networks", options.networks, "NAME:BATCH,...")->delimiter(',');
  app.add_option("--policies", options.policies, "default: all")->delimiter(',');
  app.add_option("--budgets", options.budgets, "percent of the liveness peak, floor or max")
      ->delimiter(',');
  app.add_option("--part", options.part, "k/n: every n-th cell");
  app.add_option("--on", options.on, "cuda or host");
  app.add_option("--steps", options.steps, "training steps per cell");
  app.add_option("--warmup", options.warmup, "of which are not counted");
  app.add_flag("--spans", options.spans, "also time every command (spans-*.csv)");
  app.add_flag("--stress", options.stress, "random delays and poisoned ranges");
  CLI11_PARSE(app, argc, argv);
  const superneurons::Status status = superneurons::run_all(options);
  if (status) return 0;
  fmt::print(stderr, "superneurons_fidelity: {}\n", status.error().message);
  return 1;
}
