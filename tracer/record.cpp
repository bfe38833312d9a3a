#include "tracer/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <ctime>

#include "ir/check.h"
#include "memory/placement.h"
#include "replay/host_choices.h"
#include "replay/replay_backend.h"
#include "simulator/execute.h"
#include "tracer/activity.h"
#ifdef SUPERNEURONS_CUDA
#include "replay/cuda/choices.h"
#include "tracer/cuda/cupti_collector.h"
#endif

namespace superneurons {
namespace {

/// Runs the kernels it wraps and notes, per training step and op, the host's time to issue them
/// (which on the host is the time of the op itself). With `tagged`, device work is tagged for
/// CUPTI.
class TimedKernels : public Kernels {
 public:
  TimedKernels(std::unique_ptr<Kernels> inner, std::vector<std::vector<Nanoseconds>>& issue,
               bool tagged)
      : inner_(std::move(inner)), issue_(issue), tagged_(tagged) {}

  Status prepare(const Trace& trace, std::uint64_t seed) override {
    return inner_->prepare(trace, seed);
  }

  Status run(const KernelCall& call, void* stream) override {
    push(call);
    const auto begin = std::chrono::steady_clock::now();
    Status status = inner_->run(call, stream);
    const auto end = std::chrono::steady_clock::now();
    pop();
    const auto step = static_cast<std::size_t>(call.training_step);
    if (step < issue_.size()) issue_[step][call.op.index] = {(end - begin).count()};
    return status;
  }

  Bytes outside_bytes() const override { return inner_->outside_bytes(); }

 private:
#ifdef SUPERNEURONS_CUDA
  void push(const KernelCall& call) {
    if (tagged_) CuptiCollector::push_tag(make_tag(call.training_step, call.op));
  }
  void pop() {
    if (tagged_) CuptiCollector::pop_tag();
  }
#else
  void push(const KernelCall&) {}
  void pop() {}
#endif
  std::unique_ptr<Kernels> inner_;
  std::vector<std::vector<Nanoseconds>>& issue_;
  bool tagged_;
};

/// What one sequence of training steps under keep_all gave.
struct Pass {
  Measured measured;
  std::vector<std::vector<Nanoseconds>> issue;  // [training step][op]
  Attribution device;                           // traced passes on CUDA only
  Losses losses;
  ActivityLog log;
};

struct PassOptions {
  int steps = 1;
  bool traced = false;
};

Plan plan_with(const Trace& trace, const std::vector<std::uint32_t>& choice_of) {
  Plan plan = keep_all_plan(trace);
  for (PlanStep& step : plan.steps)
    if (step.kind == StepKind::run) step.choice = choice_of[step.subject];
  plan.budget = {Bytes{std::int64_t{1} << 60}, {}};
  return plan;
}

std::unique_ptr<Kernels> native_kernels([[maybe_unused]] bool on_cuda) {
#ifdef SUPERNEURONS_CUDA
  if (on_cuda) return make_cuda_native_kernels();
#endif
  return make_host_native_kernels();
}

Status initialise_homes(const Trace& trace, const Placement& placement, ReplayBackend& backend) {
  for (const Allocation& home : placement.homes)
    if (Status status = backend.initialise(trace, home.tensor, home.space, home.range); !status)
      return status;
  return Ok{};
}

Result<Pass> run_pass(const Trace& trace, const std::vector<std::uint32_t>& choice_of,
                      const PassOptions& pass_options, const RecordOptions& options) {
  const Plan plan = plan_with(trace, choice_of);
  if (const auto violation = check(trace, plan)) return to_error(*violation);
  const Result<Placement> placement = place(trace, plan, plan.budget.device);
  if (!placement) return placement.error();
  const Program program = build_program(trace, plan, *placement);

  Pass pass;
  pass.issue.assign(static_cast<std::size_t>(pass_options.steps),
                    std::vector<Nanoseconds>(trace.ops.size()));
  const bool tagged = pass_options.traced && options.on_cuda;
  auto backend = make_backend(
      std::make_unique<TimedKernels>(native_kernels(options.on_cuda), pass.issue, tagged),
      options.on_cuda,
      {.arena = placement->placed_peak, .seed = options.seed, .stop = options.stop});
  if (!backend) return backend.error();
  if (Status status = (*backend)->prepare(trace, program); !status) return status.error();
  if (Status status = initialise_homes(trace, *placement, **backend); !status)
    return status.error();

#ifdef SUPERNEURONS_CUDA
  std::unique_ptr<CuptiCollector> collector;
  if (tagged) {
    auto started = CuptiCollector::start();
    if (!started) return started.error();
    collector = std::move(*started);
  }
#endif
  const Status executed =
      execute(trace, program, **backend,
              {.training_steps = pass_options.steps, .prepared = true, .stop = options.stop});
#ifdef SUPERNEURONS_CUDA
  if (collector) {
    auto log = collector->stop();
    if (!log) return log.error();
    pass.log = std::move(*log);
    pass.device = attribute(pass.log, pass_options.steps, trace.ops.size());
    pass.losses = losses_of(pass.log, pass.device, options.warmup_steps);
  }
#endif
  if (!executed) return executed.error();
  pass.measured = (*backend)->measured();
  return pass;
}

Nanoseconds median_step(const std::vector<Nanoseconds>& steps, int warmup) {
  if (static_cast<int>(steps.size()) <= warmup) return {};
  return median({steps.begin() + warmup, steps.end()});
}

/// Device time of one op in each counted training step in which it was seen.
std::vector<Nanoseconds> spans_of(const Pass& pass, std::size_t op, int warmup, bool on_cuda) {
  if (on_cuda) return seen_spans(pass.device, op, warmup);
  std::vector<Nanoseconds> spans;
  const std::size_t steps = pass.issue.size();
  for (auto step = static_cast<std::size_t>(warmup); step < steps; ++step)
    spans.push_back(pass.issue[step][op]);
  return spans;
}

/// 0 for an op that does nothing on the device.
Nanoseconds median_or_zero(const std::vector<Nanoseconds>& spans) {
  return spans.empty() ? Nanoseconds{} : median(spans);
}

/// Runs whole training steps in which every op takes its choice number `round` (modulo how many it
/// has), so that each choice is timed between its real neighbours and not warm in cache.
Status measure_choices(Trace& trace, const RecordOptions& options, Losses& losses) {
  std::size_t rounds = 1;
  for (const Op& op : trace.ops) rounds = std::max(rounds, op.choices.size());
  std::vector<std::vector<std::vector<Nanoseconds>>> seen(trace.ops.size());
  for (std::size_t op = 0; op < trace.ops.size(); ++op)
    seen[op].resize(trace.ops[op].choices.size());
  for (std::size_t round = 0; round < rounds; ++round) {
    if (options.progress)
      options.progress(fmt::format("choices: round {} of {}", round + 1, rounds));
    std::vector<std::uint32_t> choice_of;
    for (const Op& op : trace.ops)
      choice_of.push_back(static_cast<std::uint32_t>(round % op.choices.size()));
    const int steps = options.warmup_steps + options.traced_steps;
    auto pass = run_pass(trace, choice_of, {.steps = steps, .traced = true}, options);
    if (!pass) return pass.error();
    losses += pass->losses;
    for (std::size_t op = 0; op < trace.ops.size(); ++op) {
      const auto spans = spans_of(*pass, op, options.warmup_steps, options.on_cuda);
      auto& list = seen[op][choice_of[op]];
      list.insert(list.end(), spans.begin(), spans.end());
    }
  }
  for (std::size_t op = 0; op < trace.ops.size(); ++op)
    for (std::size_t choice = 0; choice < seen[op].size(); ++choice)
      trace.ops[op].choices[choice].ns = median_or_zero(seen[op][choice]);
  return Ok{};
}

/// The fastest deterministic choice of each op.
void choose_fastest(Trace& trace) {
  for (Op& op : trace.ops) {
    for (std::uint32_t i = 0; i < op.choices.size(); ++i) {
      const Choice& best = op.choices[op.recorded];
      const Choice& choice = op.choices[i];
      if (!choice.deterministic) continue;
      if (!best.deterministic || choice.ns < best.ns) op.recorded = i;
    }
  }
}

std::vector<std::uint32_t> recorded_choices(const Trace& trace) {
  std::vector<std::uint32_t> choices;
  for (const Op& op : trace.ops) choices.push_back(op.recorded);
  return choices;
}

/// What the op did in the last training step in which it was seen.
const OpActivity& last_seen(const Attribution& device, std::size_t op) {
  for (std::size_t step = device.steps.size(); step-- > 1;)
    if (!device.steps[step][op].parts.empty()) return device.steps[step][op];
  return device.steps.front()[op];
}

void store_traced(Trace& trace, const Pass& pass, const RecordOptions& options) {
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    Op& op = trace.ops[i];
    op.choices[op.recorded].ns =
        median_or_zero(spans_of(pass, i, options.warmup_steps, options.on_cuda));
    if (!options.on_cuda) continue;
    op.kernels.clear();
    for (const DeviceActivity& part : last_seen(pass.device, i).parts)
      op.kernels.push_back({pass.log.names[part.name], part.end - part.start});
  }
  trace.step_ns_traced = median_step(pass.measured.steps, options.warmup_steps);
}

void store_untraced(Trace& trace, const Pass& pass, const RecordOptions& options) {
  trace.step_ns_untraced = median_step(pass.measured.steps, options.warmup_steps);
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    std::vector<Nanoseconds> issue;
    for (auto step = static_cast<std::size_t>(options.warmup_steps); step < pass.issue.size();
         ++step)
      issue.push_back(pass.issue[step][i]);
    if (options.on_cuda) trace.ops[i].host_ns = median(issue);
  }
}

void set_capabilities(Trace& trace, const RecordOptions& options, const Losses& losses) {
  const auto set = [&](Fact fact, Capability capability) {
    trace.capabilities[static_cast<std::size_t>(fact)] = capability;
  };
  const Capability seen = losses.exact() ? Capability::exact : Capability::inferred;
  set(Fact::durations, seen);
  set(Fact::workspaces, Capability::exact);
  set(Fact::choices, options.choices ? Capability::exact : Capability::none);
  set(Fact::kernels, options.on_cuda ? seen : Capability::none);
  set(Fact::host_times, options.on_cuda ? Capability::exact : Capability::none);
}

}  // namespace

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm date{};
  gmtime_r(&now, &date);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &date);
  return text;
}

Result<Trace> record(Trace trace, const RecordOptions& options) {
#ifdef SUPERNEURONS_CUDA
  if (options.on_cuda)
    if (Status status = enumerate_choices(trace, options.workspace_limit, options.choices); !status)
      return status.error();
#endif
  if (!options.on_cuda)
    if (Status status = enumerate_host_choices(trace, options.workspace_limit, options.choices);
        !status)
      return status.error();
  Losses losses;
  if (options.choices) {
    if (Status status = measure_choices(trace, options, losses); !status) return status.error();
    choose_fastest(trace);
  }
  const auto choices = recorded_choices(trace);
  if (options.progress) options.progress("untraced training steps");
  auto untraced =
      run_pass(trace, choices, {.steps = options.warmup_steps + options.untraced_steps}, options);
  if (!untraced) return untraced.error();
  if (options.progress) options.progress("traced training steps");
  auto traced =
      run_pass(trace, choices,
               {.steps = options.warmup_steps + options.traced_steps, .traced = true}, options);
  if (!traced) return traced.error();
  losses += traced->losses;
  store_traced(trace, *traced, options);
  store_untraced(trace, *untraced, options);
  set_capabilities(trace, options, losses);
  trace.dropped_records = losses.dropped;
  trace.origin = options.origin;
  if (options.on_cuda) trace.origin += "; " + describe(losses);
  return trace;
}

}  // namespace superneurons
