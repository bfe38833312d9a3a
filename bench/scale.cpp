// Scale: how deep and how wide a network trains for real under a budget. For each row of a list it
// records the network (of a very deep one a shallow sibling), plans, trains some steps on one fixed
// batch, compares with a reference in a larger arena where one fits, and writes predicted beside
// measured. Resumable: rows already in the result file are skipped.
//
//     superneurons_scale --out results --rows bench/scale_rows.txt [--on cuda] [--part 1/2]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <span>
#include <sstream>

#include "bench/by_kind.h"
#include "bench/lab.h"
#include "ir/files.h"
#include "networks/costs.h"
#include "policies/policy.h"
#include "replay/reference.h"
#include "simulator/rate.h"
#include "tracer/activity.h"

namespace superneurons {
namespace {

/// Deeper ones are not recorded themselves.
constexpr std::ptrdiff_t kDeepestRecorded = 200;
/// A training step of a wide network takes long enough to be timed in few.
constexpr std::int64_t kWide = 64;  // images
constexpr int kChoiceSteps = 2, kUntracedSteps = 7;
constexpr Bytes kRoomForWorkspaces = 8_GiB;

struct Options {
  Lab lab;
  std::string rows;
  std::string part = "1/1";
  std::string host_budget = "100GiB";
  int steps = 10;
  int warmup = 3;
  bool no_reference = false;
  bool plan_only = false;
};

/// One line of the list: NETWORK BATCH[|BATCH...] POLICY BUDGET end|arrive [RATE]. Of several
/// batches the first that fits is trained.
struct Cell {
  std::string network;
  std::int64_t batch = 0;
  std::string policy;
  std::string budget;
  std::string updates;
  double rate = 0.01;
  std::size_t line = 0;  // cells of one line are alternatives
};

/// "700|680" -> 700, 680; nothing if that is not what it is.
std::vector<std::int64_t> batches_of(const std::string& text) {
  std::vector<std::int64_t> batches;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, '|');) {
    const std::int64_t batch = std::atoll(word.c_str());
    if (batch < 1 || word != std::to_string(batch)) return {};
    batches.push_back(batch);
  }
  return batches;
}

Result<std::vector<Cell>> read_cells(const std::string& file) {
  std::ifstream in(file);
  if (!in) return Error{.code = ErrorCode::io, .message = "cannot be read", .file = file};
  std::vector<Cell> cells;
  std::string line;
  for (std::int64_t number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    Cell cell{.line = static_cast<std::size_t>(number)};
    std::string batches, more;
    if (!(words >> cell.network)) continue;
    bool good = static_cast<bool>(words >> batches >> cell.policy >> cell.budget >> cell.updates) &&
                (cell.updates == "end" || cell.updates == "arrive") && parse_bytes(cell.budget);
    if (good && !(words >> cell.rate)) good = words.eof();
    const std::vector<std::int64_t> found = batches_of(batches);
    if (!good || found.empty() || !(cell.rate > 0) || (words.clear(), words >> more))
      return Error{.code = ErrorCode::bad_input,
                   .message = "is not NETWORK BATCH[|BATCH...] POLICY BUDGET end|arrive [RATE]",
                   .file = file,
                   .line = number};
    for (const std::int64_t batch : found) {
      cell.batch = batch;
      cells.push_back(cell);
    }
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

/// Whether another network with the same ops is to be recorded instead, as of a ResNet's stage all
/// blocks but the first are alike: for a very deep one, and for one that this device could record
/// only beside copies.
bool wants_sibling(const Network& network, const Trace& trace, const DeviceProfile& profile) {
  if (!network.name.starts_with("resnet")) return false;
  const auto weighted =
      std::count_if(network.layers.begin(), network.layers.end(), [](const Layer& layer) {
        return layer.kind == LayerKind::convolution || layer.kind == LayerKind::linear;
      });
  if (weighted > kDeepestRecorded) return true;
  const Budget most{profile.device_memory - kRoomForWorkspaces, {}};
  return !make_plan(trace, profile, {.policy = "liveness", .budget = most, .seek_floor = false},
                    {});
}

/// Gives it the times and choices of four pairs of blocks.
Result<Trace> with_times_of_sibling(Trace trace, const Cell& cell, const DeviceProfile& profile,
                                    const Options& options, Row& row) {
  const std::string sibling = "resnet:2,2,2,2";
  Recording recording{sibling, cell.batch};
  if (cell.batch > kWide) recording.choice_steps = kChoiceSteps;
  const auto recorded = recorded_trace(options.lab, profile, recording);
  if (!recorded) return recorded.error();
  const auto copied = copy_costs(trace, {&*recorded, 1});
  if (!copied) return copied.error();
  row["times_of"] = sibling;
  row["measured_ops"] = copied->matched;
  return trace;
}

/// Recorded, or with the times of a sibling. Where nothing is to be run, or the network is too
/// large for the device under any fallback, times are estimated and choices are the kernels' own.
Result<Trace> trace_of(const Cell& cell, const DeviceProfile& profile, const Options& options,
                       Row& row) {
  const auto network = find_network(cell.network);
  if (!network) return network.error();
  const Updates updates = cell.updates == "arrive" ? Updates::arrive : Updates::end;
  auto trace = lower(*network, {.batch = cell.batch, .updates = updates, .rate = cell.rate});
  if (!trace) return trace;
  estimate_durations(*trace, profile);
  row["ops"] = trace->ops.size();
  if (options.plan_only) return trace;
  if (wants_sibling(*network, *trace, profile))
    return with_times_of_sibling(*std::move(trace), cell, profile, options, row);
  auto recorded =
      recorded_trace(options.lab, profile,
                     {cell.network, cell.batch, updates, cell.rate, kChoiceSteps, kUntracedSteps});
  if (!recorded && recorded.error().code != ErrorCode::does_not_fit) return recorded;
  row["times_of"] = recorded ? "itself" : "the cost model: " + recorded.error().message;
  row["measured_ops"] = recorded ? recorded->ops.size() : 0;
  if (!recorded) return trace;
  row["recorded_step_ns"] = recorded->step_ns_untraced.count;
  row["recorded"] = recorded->origin;
  return recorded;
}

/// With two decimals.
double rate(std::int64_t batch, Nanoseconds step) {
  return std::round(images_per_second(batch, step) * 100) / 100;
}

/// The training steps that count: after the warm-up and before the last, of which every command is
/// timed.
std::span<const Nanoseconds> counted(const Run& run, const Options& options) {
  return std::span(run.measured.steps)
      .subspan(static_cast<std::size_t>(options.warmup),
               static_cast<std::size_t>(options.steps - options.warmup));
}

/// Equality with a reference that has more room, and its own time, predicted and measured; says why
/// there is none.
Status add_reference(const Trace& trace, const Plan& plan, const DeviceProfile& profile,
                     const Run& run, ReplayOptions how, const Options& options, Row& row) {
  how.keep_spans = false;
  const auto reference = run_reference(trace, plan, how);
  if (!reference && reference.error().code != ErrorCode::does_not_fit) return reference.error();
  if (!reference) {
    row["difference"] = reference.error().message;
    return Ok{};
  }
  row["reference"] = reference->plan.policy;
  row["reference_bytes"] = reference->plan.budget.device.count;
  if (const auto outcome = evaluate(trace, reference->plan, profile))
    row["reference_step_ns"] = outcome->step_ns.count;
  const auto steps = counted(reference->run, options);
  row["reference_measured_step_ns"] = median({steps.begin(), steps.end()}).count;
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

Result<Plan> plan_of(const Trace& trace, const Cell& cell, const DeviceProfile& profile,
                     const Options& options) {
  const auto device = parse_bytes(cell.budget), host = parse_bytes(options.host_budget);
  if (!device || !host) return device ? host.error() : device.error();
  return make_plan(trace, profile,
                   {.policy = cell.policy, .budget = {*device, *host}, .seek_floor = false},
                   predictor(trace, profile));
}

Status run_cell(const Cell& cell, const DeviceProfile& profile, const Options& options, Row& row) {
  const auto begin = std::chrono::steady_clock::now();
  const auto trace = trace_of(cell, profile, options, row);
  if (!trace) return trace.error();
  row["record_s"] = seconds_since(begin);
  const auto planning = std::chrono::steady_clock::now();
  auto plan = plan_of(*trace, cell, profile, options);
  if (!plan) return plan.error();
  row["plan_s"] = seconds_since(planning);
  row["trace_hash"] = plan->trace_hash;
  const auto predicted = evaluate_in_full(*trace, *plan, profile, {.keep_spans = true});
  if (!predicted) return predicted.error();
  const Outcome& outcome = predicted->outcome;
  add_prediction(row, outcome);
  row["images_per_s"] = rate(cell.batch, outcome.step_ns);
  if (options.plan_only) return Ok{};
  plan->budget.device = outcome.placed_peak_bytes;
  const ReplayOptions how{.on_cuda = options.lab.on_cuda(),
                          .training_steps = options.steps + 1,
                          .warmup_steps = options.warmup,
                          .keep_spans = true};
  const auto run = run_plan(*trace, *plan, how);
  if (!run) return run.error();
  add_measurement(row, run->measured, counted(*run, options), outcome.step_ns);
  row["measured_images_per_s"] = rate(cell.batch, {row["measured_step_ns"].get<std::int64_t>()});
  row["measured_host_bytes"] = run->measured.host_peak.count;
  add_by_kind(row, *trace, profile, *predicted, run->measured);
  add_losses(*run, row);
  if (!options.no_reference)
    if (Status status = add_reference(*trace, *plan, profile, *run, how, options, row); !status)
      return status;
  row["wall_s"] = seconds_since(begin);
  return Ok{};
}

/// Trained, got better, in the predicted arena, and nothing shows that it is not equal.
bool holds(const Row& row) {
  return row.value("finite", false) && row.value("falls", false) && row.value("equal", true) &&
         row.value("measured_peak_bytes", std::int64_t{-1}) ==
             row.value("used_peak_bytes", std::int64_t{-2});
}

/// Answers of a cell: "" where it ran.
std::string answer_of(const Row& row) { return row.value("answer", ""); }

/// Runs what is not done yet; of the cells of one line only as far as the first that fits.
Status run_cells(const std::vector<Cell>& cells, const DeviceProfile& profile,
                 const Options& options, const Part& part) {
  const std::string file = options.lab.out + "/scale.jsonl";
  const auto done = finished_rows(file, key_of);
  std::set<std::size_t> lines, settled;
  int broken = 0;
  double longest_s = 0;
  for (const Cell& cell : cells) {
    lines.insert(cell.line);
    if (!part.has(lines.size() - 1) || settled.count(cell.line) > 0) continue;
    Row row = row_of(cell);
    if (const auto found = done.find(key_of(row)); found != done.end()) {
      if (answer_of(found->second).empty()) settled.insert(cell.line);
      continue;
    }
    if (!options.lab.time_for(longest_s)) {
      say("stopped in time: run again to go on");
      break;
    }
    say(fmt::format("{:.0f} s: {}", options.lab.elapsed_s(), key_of(row)));
    const double before = options.lab.elapsed_s();
    if (const Status status = run_cell(cell, profile, options, row); !status) {
      row["error"] = status.error().message;
      row["answer"] = status.error().code == ErrorCode::does_not_fit ? "does_not_fit" : "failed";
    }
    longest_s = std::max(longest_s, options.lab.elapsed_s() - before);
    if (answer_of(row) != "does_not_fit") settled.insert(cell.line);
    if (options.plan_only) {
      say(row.dump());
      continue;
    }
    if (Status status = append_row(file, row); !status) return status;
    broken += answer_of(row) != "does_not_fit" && !holds(row);
  }
  if (broken > 0)
    return Error{.code = ErrorCode::not_equal,
                 .message = fmt::format("{} rows did not train as they should", broken)};
  return Ok{};
}

Status run_all(const Options& options) {
  if (Status good = prepare_lab(options.lab, options.steps, options.warmup); !good) return good;
  const auto part = parse_part(options.part);
  if (!part) return part.error();
  const auto cells = read_cells(options.rows);
  if (!cells) return cells.error();
  const auto profile = profile_of(options.lab);
  if (!profile) return profile.error();
  return run_cells(*cells, *profile, options, *part);
}

}  // namespace
}  // namespace superneurons

int main(int argc, char** argv) {
  superneurons::Options options;
  options.lab.program = "superneurons_scale";
  CLI::App app{"how deep and how wide a network trains for real under a budget"};
  app.add_option("--out", options.lab.out, "folder of results")->required();
  app.add_option("--rows", options.rows,
                 "NETWORK BATCH[|BATCH...] POLICY BUDGET end|arrive [RATE] per line")
      ->required();
  app.add_option("--on", options.lab.on, "cuda or host");
  app.add_option("--host-budget", options.host_budget, "pinned host memory");
  app.add_option("--part", options.part, "k/n: every n-th line of the list");
  app.add_option("--limit-s", options.lab.limit_s, "stop cleanly before that many seconds");
  app.add_option("--steps", options.steps,
                 "training steps per row, and one more in which every command is timed");
  app.add_option("--warmup", options.warmup, "of which are not counted");
  app.add_flag("--no-reference", options.no_reference, "no comparison with a larger arena");
  app.add_flag("--plan-only", options.plan_only, "plan and predict, run nothing, write no row");
  CLI11_PARSE(app, argc, argv);
  const superneurons::Status status = superneurons::run_all(options);
  if (status) return 0;
  const superneurons::Error& error = status.error();
  const std::string where = error.file.empty() ? ""
                            : error.line == 0  ? error.file + ": "
                                               : fmt::format("{}:{}: ", error.file, error.line);
  fmt::print(stderr, "superneurons_scale: {}{}\n", where, error.message);
  return 1;
}
