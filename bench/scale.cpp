// Scale: how deep and how wide a network trains for real under a budget. For each row of a list it
// builds the trace (with times measured on a shallow sibling), plans, trains some steps on one
// fixed batch, compares with a reference in a larger arena where one fits, and writes predicted
// beside measured. Resumable: rows already in the result file are skipped.
//
//     superneurons_scale --out results --rows bench/scale_rows.txt [--on cuda]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/lab.h"
#include "ir/files.h"
#include "ir/trace_io.h"
#include "networks/costs.h"
#include "networks/network.h"
#include "policies/policy.h"
#include "replay/reference.h"

namespace superneurons {
namespace {

struct Options {
  Lab lab;
  std::string rows;
  std::string host_budget = "100GiB";
  int steps = 10;
  int warmup = 3;
  bool no_reference = false;
  bool plan_only = false;
};

/// One line of the list: NETWORK BATCH POLICY BUDGET end|arrive [RATE].
struct Cell {
  std::string network;
  std::int64_t batch = 0;
  std::string policy;
  std::string budget;
  std::string updates;
  double rate = 0.01;
};

Result<std::vector<Cell>> read_cells(const std::string& file) {
  std::ifstream in(file);
  if (!in) return Error{.code = ErrorCode::io, .message = "cannot be read", .file = file};
  std::vector<Cell> cells;
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    Cell cell;
    if (!(words >> cell.network)) continue;
    const bool good =
        static_cast<bool>(words >> cell.batch >> cell.policy >> cell.budget >> cell.updates) &&
        cell.batch > 0 && (cell.updates == "end" || cell.updates == "arrive");
    if (good && !(words >> cell.rate)) cell.rate = Cell{}.rate;
    if (!good || !parse_bytes(cell.budget))
      return Error{.code = ErrorCode::bad_input,
                   .message = "is not NETWORK BATCH POLICY BUDGET end|arrive [RATE]",
                   .file = file,
                   .line = number};
    cells.push_back(cell);
  }
  return cells;
}

std::string key_of(const Row& row) {
  return fmt::format("{} {} {} {} {} {}", row.value("network", ""), row.value("batch", 0),
                     row.value("policy", ""), row.value("budget", ""), row.value("updates", ""),
                     row.value("rate", 0.0));
}

Row row_of(const Cell& cell) {
  return {{"network", cell.network}, {"batch", cell.batch},     {"policy", cell.policy},
          {"budget", cell.budget},   {"updates", cell.updates}, {"rate", cell.rate}};
}

/// A network with the same ops that is cheap to record: of a ResNet's stage all blocks but the
/// first are alike.
std::string sibling_of(const std::string& network) {
  return network.starts_with("resnet") ? "resnet:2,2,2,2" : network;
}

/// The lowered network with the times and choices of its sibling. Where that is too large to be
/// recorded with everything kept, times are estimated and choices are the kernels' own.
Result<Trace> trace_of(const Cell& cell, const DeviceProfile& profile, const Options& options,
                       Row& row) {
  const auto network = find_network(cell.network);
  if (!network) return network.error();
  auto trace =
      lower(*network, {.batch = cell.batch,
                       .updates = cell.updates == "arrive" ? Updates::arrive : Updates::end,
                       .rate = cell.rate});
  if (!trace) return trace;
  row["ops"] = trace->ops.size();
  estimate_durations(*trace, profile);
  const auto recorded = recorded_trace(options.lab, sibling_of(cell.network), cell.batch);
  if (!recorded && recorded.error().code != ErrorCode::does_not_fit) return recorded.error();
  if (!recorded) {
    row["measured_ops"] = 0;
    return trace;
  }
  const auto copied = copy_costs(*trace, {&*recorded, 1});
  if (!copied) return copied.error();
  row["measured_ops"] = copied->matched;
  return trace;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  return std::round(passed.count() * 100) / 100;
}

double images_per_second(std::int64_t batch, std::int64_t step_ns) {
  return std::round(static_cast<double>(batch) * 1e11 / static_cast<double>(step_ns)) / 100;
}

/// Equality with a reference that has more room; says why there is none.
Status add_equality(const Trace& trace, const Plan& plan, const Run& run, const ReplayOptions& how,
                    Row& row) {
  const auto reference = run_reference(trace, plan, how);
  if (!reference && reference.error().code != ErrorCode::does_not_fit) return reference.error();
  if (!reference) {
    row["difference"] = reference.error().message;
    return Ok{};
  }
  row["reference"] = reference->plan.policy;
  row["reference_bytes"] = reference->plan.budget.device.count;
  row["difference"] = difference(trace, reference->run.checksums, run.checksums);
  row["equal"] = row["difference"] == "" && reference->run.losses == run.losses;
  return Ok{};
}

void add_losses(const Run& run, Row& row) {
  row["losses"] = run.losses;
  row["finite"] = std::all_of(run.losses.begin(), run.losses.end(),
                              [](float loss) { return std::isfinite(loss); });
  row["falls"] = run.losses.size() > 1 && run.losses.back() < run.losses.front();
}

Status run_cell(const Cell& cell, const DeviceProfile& profile, const Options& options, Row& row) {
  const auto begin = std::chrono::steady_clock::now();
  const auto trace = trace_of(cell, profile, options, row);
  if (!trace) return trace.error();
  const auto host = parse_bytes(options.host_budget);
  if (!host) return host.error();
  const auto planning = std::chrono::steady_clock::now();
  auto plan = make_plan(
      *trace, profile,
      {.policy = cell.policy, .budget = {*parse_bytes(cell.budget), *host}, .seek_floor = false},
      predictor(*trace, profile));
  if (!plan) return plan.error();
  row["plan_s"] = seconds_since(planning);
  row["trace_hash"] = plan->trace_hash;
  const auto outcome = evaluate(*trace, *plan, profile);
  if (!outcome) return outcome.error();
  add_prediction(row, *outcome);
  row["images_per_s"] = images_per_second(cell.batch, outcome->step_ns.count);
  if (options.plan_only) return Ok{};
  plan->budget.device = outcome->placed_peak_bytes;
  const ReplayOptions how{.on_cuda = options.lab.on_cuda(),
                          .training_steps = options.steps,
                          .warmup_steps = options.warmup};
  const auto run = run_plan(*trace, *plan, how);
  if (!run) return run.error();
  add_measurement(row, run->measured, outcome->step_ns, options.warmup);
  row["measured_images_per_s"] =
      images_per_second(cell.batch, row["measured_step_ns"].get<std::int64_t>());
  row["measured_host_bytes"] = run->measured.host_peak.count;
  add_losses(*run, row);
  if (!options.no_reference)
    if (Status status = add_equality(*trace, *plan, *run, how, row); !status) return status;
  row["wall_s"] = seconds_since(begin);
  return Ok{};
}

/// Trained, got better, in the predicted arena, and nothing shows that it is not equal.
bool holds(const Row& row) {
  return row.value("finite", false) && row.value("falls", false) && row.value("equal", true) &&
         row.value("measured_peak_bytes", std::int64_t{-1}) ==
             row.value("used_peak_bytes", std::int64_t{-2});
}

Status run_all(const Options& options) {
  std::error_code failed;
  std::filesystem::create_directories(options.lab.out, failed);
  if (options.steps <= options.warmup || (options.lab.on != "cuda" && options.lab.on != "host"))
    return Error{.code = ErrorCode::bad_usage,
                 .message = "--steps must exceed --warmup, and --on is cuda or host"};
  const auto cells = read_cells(options.rows);
  if (!cells) return cells.error();
  const auto profile = profile_of(options.lab);
  if (!profile) return profile.error();
  const std::string file = options.lab.out + "/scale.jsonl";
  const auto done = finished_rows(file, key_of);
  const bool broken_off = !ends_with_newline(file);
  std::ofstream out(file, std::ios::app);
  if (broken_off) out << '\n';
  int broken = 0;
  for (const Cell& cell : *cells) {
    Row row = row_of(cell);
    if (done.count(key_of(row))) continue;
    say(key_of(row));
    if (const Status status = run_cell(cell, *profile, options, row); !status) {
      row["error"] = status.error().message;
      row["answer"] = status.error().code == ErrorCode::does_not_fit ? "does_not_fit" : "failed";
    }
    if (!options.plan_only) out << row.dump() << std::endl;
    say(row.dump());
    broken += !options.plan_only && !holds(row);
  }
  if (broken > 0)
    return Error{.code = ErrorCode::not_equal,
                 .message = fmt::format("{} rows did not train as they should", broken)};
  return Ok{};
}

}  // namespace
}  // namespace superneurons

int main(int argc, char** argv) {
  superneurons::Options options;
  options.lab.program = "superneurons_scale";
  CLI::App app{"how deep and how wide a network trains for real under a budget"};
  app.add_option("--out", options.lab.out, "folder of results")->required();
  app.add_option("--rows", options.rows, "NETWORK BATCH POLICY BUDGET end|arrive [RATE] per line")
      ->required();
  app.add_option("--on", options.lab.on, "cuda or host");
  app.add_option("--host-budget", options.host_budget, "pinned host memory");
  app.add_option("--steps", options.steps, "training steps per row");
  app.add_option("--warmup", options.warmup, "of which are not counted");
  app.add_flag("--no-reference", options.no_reference, "no comparison with a larger arena");
  app.add_flag("--plan-only", options.plan_only, "plan and predict, run nothing, write no row");
  CLI11_PARSE(app, argc, argv);
  const superneurons::Status status = superneurons::run_all(options);
  if (status) return 0;
  fmt::print(stderr, "superneurons_scale: {}\n", status.error().message);
  return 1;
}
