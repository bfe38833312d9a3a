// Fidelity: records networks, calibrates and replays in one process, and writes predicted beside
// measured for every policy and budget. Plans that are the same, byte by byte, are replayed once.
// Resumable: cells already in the result file are skipped.
//
//     superneurons_fidelity --out results [--networks alexnet:128,resnet50:64] [--part 1/2]
//     [--limit-s 500] [--on cuda]
//
// With --traces it takes traces of other programs instead, recorded on this machine: equality from
// surrogates that read and write every byte, times from surrogates that take the recorded time.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <set>

#include "bench/by_kind.h"
#include "bench/fidelity_cells.h"
#include "bench/lab.h"
#include "ir/files.h"
#include "ir/trace_io.h"
#include "policies/policy.h"
#include "replay/reference.h"

namespace superneurons {
namespace {

/// Recording a network, at most.
constexpr double kRecordSeconds = 120;

struct Options {
  Lab lab;
  std::vector<std::string> networks{"alexnet:128", "vgg16:64", "resnet50:64", "resnet152:32"};
  std::vector<std::string> traces;  // instead of networks
  std::vector<std::string> policies;
  std::vector<std::string> budgets{"100", "80", "60", "floor"};
  std::string part = "1/1";
  int steps = 10;
  int warmup = 3;
  int choice_steps = 0;
  bool stress = false;
  bool spans = false;
  bool by_kind = false;

  /// One more than is counted where every command of the last is timed.
  int training_steps() const { return steps + (spans || by_kind ? 1 : 0); }
};

/// What a reference ended with, for all plans that take the same choices.
struct Expected {
  Checksums checksums;
  std::vector<float> losses;
};

/// What one process knows of one network.
struct Bench {
  const Subject& subject;
  const DeviceProfile& profile;
  const Options& options;
  std::map<std::string, Expected> references;  // by the choices taken
  std::map<std::string, Row> measured;         // by plan_hash

  bool surrogates() const { return subject.trace.capability(Fact::native) == Capability::none; }
};

/// Training steps of a replay that only verifies.
constexpr int kVerifySteps = 3;

std::string choices_key(const Plan& plan) {
  std::map<std::uint32_t, std::uint32_t> choice_of;
  for (const PlanStep& step : plan.steps)
    if (step.kind == StepKind::run) choice_of[step.subject] = step.choice;
  std::string key;
  for (const auto& [op, choice] : choice_of) key += fmt::format("{},", choice);
  return key;
}

Result<const Expected*> reference(Bench& bench, const Plan& plan, const ReplayOptions& how) {
  const std::string key = choices_key(plan);
  if (const auto found = bench.references.find(key); found != bench.references.end())
    return &found->second;
  ReplayOptions plain = how;
  plain.stress = plain.keep_spans = false;
  auto run = run_reference(bench.subject.trace, plan, plain);
  if (!run) return run.error();
  Expected expected{std::move(run->run.checksums), std::move(run->run.losses)};
  return &(bench.references[key] = std::move(expected));
}

Status add_equality(Bench& bench, const Plan& plan, const Run& run, const ReplayOptions& how,
                    Row& row) {
  const auto expected = reference(bench, plan, how);
  if (!expected && expected.error().code != ErrorCode::does_not_fit) return expected.error();
  if (!expected || run.checksums.values.empty()) {  // says nothing of equality: it does not hold
    row["difference"] = expected ? "nothing to compare" : expected.error().message;
    return Ok{};
  }
  row["difference"] = difference(bench.subject.trace, (*expected)->checksums, run.checksums);
  row["equal"] = row["difference"] == "" && (*expected)->losses == run.losses;
  return Ok{};
}

/// Runs the plan once more, under surrogates that read and write every byte.
Status verify(Bench& bench, const Plan& plan, ReplayOptions how, Row& row) {
  how.kernels = KernelSet::verify;
  how.training_steps = kVerifySteps;
  how.warmup_steps = 0;
  how.keep_spans = false;
  const auto run = run_plan(bench.subject.trace, plan, how);
  if (!run) return run.error();
  return add_equality(bench, plan, *run, how, row);
}

/// Every command's predicted and measured start and end, to find what a prediction misses.
Status write_spans(const Bench& bench, const Evaluation& predicted, const Run& run,
                   const Row& row) {
  std::string policy = row["policy"];
  for (char& c : policy)
    if (c == ':' || c == '/') c = '_';
  return write_file(fmt::format("{}/spans-{}-{}-{}.csv", bench.options.lab.out,
                                bench.subject.trace.name, policy, row["budget"].get<std::string>()),
                    spans_csv(bench.subject.trace, predicted, run.measured));
}

/// Fills the row with predicted, measured and equality.
Status replay_cell(Bench& bench, const FidelityCell& cell, Row& row) {
  const Options& options = bench.options;
  const Trace& trace = bench.subject.trace;
  const auto begin = std::chrono::steady_clock::now();
  Plan plan = *cell.plan;
  const bool timed = options.spans || options.by_kind;
  const auto predicted = evaluate_in_full(trace, plan, bench.profile, {.keep_spans = timed});
  if (!predicted) return predicted.error();
  plan.budget.device = predicted->outcome.placed_peak_bytes;
  const ReplayOptions how{.on_cuda = options.lab.on_cuda(),
                          .kernels = bench.surrogates() ? KernelSet::timed : KernelSet::native,
                          .training_steps = options.training_steps(),
                          .warmup_steps = options.warmup,
                          .stress = options.stress,
                          .keep_spans = timed};
  const auto run = run_plan(trace, plan, how);
  if (!run) return run.error();
  const auto counted = std::span(run->measured.steps)
                           .subspan(static_cast<std::size_t>(options.warmup),
                                    static_cast<std::size_t>(options.steps - options.warmup));
  add_measurement(row, run->measured, counted, predicted->outcome.step_ns);
  add_prediction(row, predicted->outcome);
  if (options.by_kind) add_by_kind(row, trace, bench.profile, *predicted, run->measured);
  const Status compared = bench.surrogates() ? verify(bench, plan, how, row)
                                             : add_equality(bench, plan, *run, how, row);
  if (!compared) return compared;
  if (options.spans)
    if (Status status = write_spans(bench, *predicted, *run, row); !status) return status;
  row["wall_s"] = seconds_since(begin);
  return Ok{};
}

std::string key_of(const Row& row) {
  return fmt::format("{} {} {}", row.value("trace_hash", ""), row.value("policy", ""),
                     row.value("budget", ""));
}

/// Whether the cell holds: equal results and the predicted arena, or an honest "does not fit".
bool holds(const Row& row) {
  if (row.contains("error")) return row.value("answer", "") == "does_not_fit";
  return row.value("equal", false) && row["measured_peak_bytes"] == row["used_peak_bytes"];
}

std::string_view answer_to(const Error& error) {
  return error.code == ErrorCode::does_not_fit ? "does_not_fit" : "failed";
}

/// What was measured of the same plan, under this cell's name.
void take_over(Row& row, const Row& same) {
  row["same_as"] = fmt::format("{} {}", same.value("policy", ""), same.value("budget", ""));
  for (const auto& [key, value] : same.items())
    if (!row.contains(key)) row[key] = value;
  row["wall_s"] = 0.0;
}

void run_cell(Bench& bench, const FidelityCell& cell, Row& row) {
  Status status = cell.plan ? Status(Ok{}) : Status(*cell.why);
  if (cell.plan) {
    row["plan_hash"] = cell.plan_hash;
    if (const auto same = bench.measured.find(cell.plan_hash); same != bench.measured.end())
      return take_over(row, same->second);
    status = replay_cell(bench, cell, row);
  }
  if (status) {
    bench.measured[cell.plan_hash] = row;
    return;
  }
  row["error"] = status.error().message;
  row["answer"] = answer_to(status.error());
}

std::vector<std::string> policy_names(const Options& options) {
  if (!options.policies.empty()) return options.policies;
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policies()) names.emplace_back(entry.name);
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  return names;
}

/// The names whose turn it is in this part of the work.
std::vector<std::string> share_of(const std::vector<std::string>& names, const Part& part,
                                  std::size_t first) {
  std::vector<std::string> share;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (part.has(first + i)) share.push_back(names[i]);
  return share;
}

double estimate(const std::vector<FidelityCell>& cells, const std::set<std::string>& known,
                std::size_t from) {
  std::set<std::string> hashes = known;
  double seconds = 0;
  for (std::size_t i = from; i < cells.size(); ++i)
    if (cells[i].plan && hashes.insert(cells[i].plan_hash).second) seconds += cells[i].estimate_s;
  return seconds;
}

/// What a process does, over all networks.
struct Progress {
  int broken = 0;
  bool stopped = false;
};

Status run_subject(Bench& bench, std::vector<FidelityCell> cells, Progress& progress) {
  const std::string file = bench.options.lab.out + "/fidelity.jsonl";
  const Subject& subject = bench.subject;
  const auto done = finished_rows(file, key_of);
  std::set<std::string> known;
  for (const auto& [key, row] : done)
    if (row.value("trace_hash", "") == subject.hash && row.contains("plan_hash") && holds(row)) {
      bench.measured.emplace(row["plan_hash"].get<std::string>(), row);
      known.insert(row["plan_hash"].get<std::string>());
    }
  const auto row_of = [&](const FidelityCell& cell) {
    return Row{{"trace", subject.trace.name},
               {"trace_hash", subject.hash},
               {"policy", cell.policy},
               {"budget", cell.budget},
               {"budget_bytes", cell.bytes.count}};
  };
  std::erase_if(cells, [&](const FidelityCell& cell) { return done.count(key_of(row_of(cell))); });
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const double left = estimate(cells, known, i);
    if (cells[i].plan && known.count(cells[i].plan_hash) == 0 &&
        !bench.options.lab.time_for(2 * cells[i].estimate_s)) {
      progress.stopped = true;
      return Ok{};
    }
    say(fmt::format("{:.0f} s: {} {} {}, cell {} of {}, about {:.0f} s and references left",
                    bench.options.lab.elapsed_s(), subject.trace.name, cells[i].policy,
                    cells[i].budget, i + 1, cells.size(), left));
    Row row = row_of(cells[i]);
    run_cell(bench, cells[i], row);
    if (cells[i].plan) known.insert(cells[i].plan_hash);
    progress.broken += !holds(row);
    if (Status status = append_row(file, row); !status) return status;
  }
  return Ok{};
}

Result<Recording> recording_of(const std::string& spec, const Options& options) {
  const auto colon = spec.rfind(':');
  Recording recording{.choice_steps = options.choice_steps};
  if (colon != std::string::npos) {
    recording.network = spec.substr(0, colon);
    recording.batch = std::atoll(spec.c_str() + colon + 1);
  }
  if (recording.batch > 0) return recording;
  return Error{.code = ErrorCode::bad_usage,
               .message = fmt::format("--networks {} is not of the form NAME:BATCH", spec)};
}

Status run_trace(Trace trace, const std::vector<std::string>& policies,
                 const DeviceProfile& profile, const Options& options, Progress& progress) {
  const auto subject = subject_of(std::move(trace), profile);
  if (!subject) return subject.error();
  say(fmt::format("{:.0f} s: planning {}", options.lab.elapsed_s(), subject->trace.name));
  std::vector<FidelityCell> cells =
      plan_cells(*subject, profile, policies, options.budgets, options.training_steps());
  Bench bench{*subject, profile, options, {}, {}};
  return run_subject(bench, std::move(cells), progress);
}

/// Under the name of its file: programs call their traces what they like.
Result<Trace> trace_in(const std::string& file) {
  auto trace = read_trace(file);
  if (!trace) {
    Error error = trace.error();
    error.message = fmt::format("{}: {}", file, error.message);
    return error;
  }
  const std::string name = std::filesystem::path(file).filename().string();
  trace->name = name.substr(0, name.find(".jsonl"));
  return trace;
}

/// Where the trace that is measured comes from, asked for when there is time for it.
using Source = std::function<Result<Trace>(const DeviceProfile&)>;

Result<std::vector<Source>> sources_of(const Options& options) {
  std::vector<Source> sources;
  for (const std::string& file : options.traces)
    sources.emplace_back([file](const DeviceProfile&) { return trace_in(file); });
  if (!sources.empty()) return sources;
  for (const std::string& spec : options.networks) {
    auto recording = recording_of(spec, options);
    if (!recording) return recording.error();
    sources.emplace_back(
        [&options, recording = *std::move(recording)](const DeviceProfile& profile) {
          return recorded_trace(options.lab, profile, recording);
        });
  }
  return sources;
}

Status run_all(const Options& options) {
  if (Status good = prepare_lab(options.lab, options.steps, options.warmup); !good) return good;
  if (Status good = check_budgets(options.budgets); !good) return good;
  const auto part = parse_part(options.part);
  if (!part) return part.error();
  const auto sources = sources_of(options);
  if (!sources) return sources.error();
  const auto profile = profile_of(options.lab);
  if (!profile) return profile.error();
  const std::vector<std::string> names = policy_names(options);
  Progress progress;
  for (std::size_t i = 0; i < sources->size() && !progress.stopped; ++i) {
    const std::vector<std::string> policies = share_of(names, *part, i);
    if (policies.empty()) continue;
    progress.stopped = options.traces.empty() && !options.lab.time_for(kRecordSeconds);
    if (progress.stopped) break;
    auto trace = (*sources)[i](*profile);
    if (!trace) return trace.error();
    if (Status status = run_trace(*std::move(trace), policies, *profile, options, progress);
        !status)
      return status;
  }
  if (progress.stopped) say("stopped in time: run again to go on");
  if (progress.broken == 0) return Ok{};
  return Error{.code = ErrorCode::not_equal,
               .message = fmt::format("{} cells are not equal, missed their arena or failed",
                                      progress.broken)};
}

}  // namespace
}  // namespace superneurons

int main(int argc, char** argv) {
  superneurons::Options options;
  options.lab.program = "superneurons_fidelity";
  CLI::App app{"predicted beside measured, for every network, policy and budget"};
  app.add_option("--out", options.lab.out, "folder of results")->required();
  CLI::Option* networks =
      app.add_option("--networks", options.networks, "NAME:BATCH,...")->delimiter(',');
  app.add_option("--traces", options.traces,
                 "traces of other programs, recorded on this machine: surrogate kernels")
      ->delimiter(',')
      ->excludes(networks);
  app.add_option("--policies", options.policies, "default: all")->delimiter(',');
  app.add_option("--budgets", options.budgets, "percent of the liveness peak, floor or max")
      ->delimiter(',');
  app.add_option("--part", options.part, "k/n: every n-th policy of each network");
  app.add_option("--limit-s", options.lab.limit_s, "stop cleanly before that many seconds");
  app.add_option("--on", options.lab.on, "cuda or host");
  app.add_option("--steps", options.steps, "training steps per cell");
  app.add_option("--warmup", options.warmup, "of which are not counted");
  app.add_option("--choice-steps", options.choice_steps,
                 "training steps per round of choices (default: 7)");
  app.add_flag("--by-kind", options.by_kind,
               "time every command in one more training step, and sum up by kind of op");
  app.add_flag("--spans", options.spans, "the same, every command to spans-*.csv");
  app.add_flag("--stress", options.stress, "random delays and poisoned ranges");
  CLI11_PARSE(app, argc, argv);
  const superneurons::Status status = superneurons::run_all(options);
  if (status) return 0;
  fmt::print(stderr, "superneurons_fidelity: {}\n", status.error().message);
  return 1;
}
