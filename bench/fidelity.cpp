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
#include <nlohmann/json.hpp>
#include <set>

#include "ir/files.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "memory/allocator.h"
#include "memory/placement.h"
#include "networks/network.h"
#include "policies/policy.h"
#include "replay/reference.h"
#include "replay/replay.h"
#include "simulator/model_backend.h"
#include "simulator/outcome.h"
#include "tracer/calibrate.h"
#include "tracer/record.h"

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

void say(const std::string& line) { fmt::print(stderr, "{}\n", line); }

Result<DeviceProfile> profile_of(const Options& options) {
  const std::string file = options.out + "/profile.json";
  if (std::filesystem::exists(file)) return read_profile(file);
  const CalibrateOptions how{.name = options.on == "cuda" ? "h200" : "host",
                             .origin = fmt::format("superneurons_fidelity ({})", today()),
                             .progress = say};
#ifdef SUPERNEURONS_CUDA
  Result<DeviceProfile> profile = options.on == "cuda" ? calibrate_cuda(how) : calibrate_host(how);
#else
  Result<DeviceProfile> profile = calibrate_host(how);
#endif
  if (!profile) return profile;
  if (Status status = write_profile(*profile, file); !status) return status.error();
  return profile;
}

Result<Trace> trace_of(const Options& options, const std::string& spec) {
  const auto colon = spec.rfind(':');
  if (colon == std::string::npos || std::atoll(spec.c_str() + colon + 1) < 1)
    return Error{.code = ErrorCode::bad_usage, .message = spec + " is not of the form NAME:BATCH"};
  const std::string name = spec.substr(0, colon);
  const std::int64_t batch = std::atoll(spec.c_str() + colon + 1);
  const std::string file = fmt::format("{}/{}-b{}.jsonl.gz", options.out, name, batch);
  if (std::filesystem::exists(file)) return read_trace(file);
  say(fmt::format("recording {} batch {}", name, batch));
  const auto network = find_network(name);
  if (!network) return network.error();
  auto lowered = lower(*network, {.batch = batch});
  if (!lowered) return lowered.error();
  std::string versions = "host backend";
#ifdef SUPERNEURONS_CUDA
  if (options.on == "cuda") versions = cuda_versions();
#endif
  auto trace = record(std::move(*lowered),
                      {.on_cuda = options.on == "cuda",
                       .origin = fmt::format("superneurons trace {} --batch {} ({}, {})", name,
                                             batch, versions, today()),
                       .progress = say});
  if (!trace) return trace;
  trace->device = versions.substr(0, versions.find(','));
  if (Status status = write_trace(*trace, file); !status) return status.error();
  say(fmt::format("{}: untraced {} traced {}", name, format_time(trace->step_ns_untraced),
                  format_time(trace->step_ns_traced)));
  return trace;
}

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

using Row = nlohmann::ordered_json;

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

void add_prediction(Row& row, const Outcome& outcome) {
  row["placed_peak_bytes"] = outcome.placed_peak_bytes.count;
  row["used_peak_bytes"] = outcome.used_peak_bytes.count;
  row["host_bytes"] = outcome.host_bytes.count;
  row["compute_ns"] = outcome.compute_ns.count;
  row["offload_bytes"] = outcome.offload_bytes.count;
  row["prefetch_bytes"] = outcome.prefetch_bytes.count;
  row["recompute_runs"] = outcome.recompute_runs;
  row["recompute_ns"] = outcome.recompute_ns.count;
  for (std::size_t i = 0; i < kCauseNames.size(); ++i)
    row["stall_ns"][std::string(kCauseNames[i])] = outcome.stall_ns[i].count;
}

void add_measurement(Row& row, const Measured& measured, Nanoseconds predicted, int warmup) {
  std::vector<Nanoseconds> steps(measured.steps.begin() + warmup, measured.steps.end());
  std::sort(steps.begin(), steps.end());
  const Nanoseconds middle = steps[steps.size() / 2];
  row["step_ns"] = predicted.count;
  row["measured_step_ns"] = middle.count;
  row["error_percent"] =
      100.0 * (static_cast<double>(predicted.count) / static_cast<double>(middle.count) - 1);
  row["fastest_ns"] = steps.front().count;
  row["slowest_ns"] = steps.back().count;
  row["measured_peak_bytes"] = measured.peak.count;
  row["outside_bytes"] = measured.outside.count;
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

/// Keys of the cells that an earlier run finished; half-written lines do not count.
std::set<std::string> finished_cells(const std::string& file) {
  std::set<std::string> done;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const Row row = Row::parse(line, nullptr, false);
    if (!row.is_object()) continue;
    if (row.contains("wall_s") || row.value("answer", "") == "does_not_fit")
      done.insert(key_of(row));
  }
  return done;
}

/// True of a missing or empty file too.
bool ends_with_newline(const std::string& file) {
  std::ifstream in(file, std::ios::ate);
  if (!in || in.tellg() <= 0) return true;
  in.seekg(-1, std::ios::end);
  return in.get() == '\n';
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
  const auto done = finished_cells(file);
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

Status run_all(const Options& options) {
  std::filesystem::create_directories(options.out);
  const auto profile = profile_of(options);
  if (!profile) return profile.error();
  std::size_t part = 1, parts = 1, cell = 0;
  int broken = 0;
  if (std::sscanf(options.part.c_str(), "%zu/%zu", &part, &parts) != 2 || part < 1 || part > parts)
    return Error{.code = ErrorCode::bad_usage, .message = "--part is not of the form 1/2"};
  if (options.steps <= options.warmup || (options.on != "cuda" && options.on != "host"))
    return Error{.code = ErrorCode::bad_usage,
                 .message = "--steps must exceed --warmup, and --on is cuda or host"};
  for (const std::string& spec : options.networks) {
    auto trace = trace_of(options, spec);
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
