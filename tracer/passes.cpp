#include "tracer/passes.h"

#include <algorithm>
#include <chrono>

#include "ir/check.h"
#include "memory/placement.h"
#include "simulator/execute.h"
#ifdef SUPERNEURONS_CUDA
#include "tracer/cuda/cupti_collector.h"
#endif

namespace superneurons {

/// Where the kernels of a backend, which outlives a pass, note what happens in it.
struct Passes::Sink {
  Pass* pass = nullptr;
  bool tagged = false;
  bool lenient = false;
  std::size_t failures = 0;
  Status first_failure = Ok{};
};

/// Runs the kernels it wraps, times the host and, on CUDA, tags their device work for CUPTI.
class Passes::TimedKernels : public Kernels {
 public:
  TimedKernels(std::unique_ptr<Kernels> inner, Sink& sink)
      : inner_(std::move(inner)), sink_(sink) {}

  Status prepare(const Trace& trace, std::uint64_t seed) override {
    return inner_->prepare(trace, seed);
  }

  Status run(const KernelCall& call, void* stream) override {
    if (call.rerun) return tolerate(call, inner_->run(call, stream));
    push(call);
    const auto begin = std::chrono::steady_clock::now();
    Status status = inner_->run(call, stream);
    const auto end = std::chrono::steady_clock::now();
    pop();
    const auto step = static_cast<std::size_t>(call.training_step);
    if (step < sink_.pass->issue.size())
      sink_.pass->issue[step][call.op.index] = {(end - begin).count()};
    return tolerate(call, std::move(status));
  }

  Bytes outside_bytes() const override { return inner_->outside_bytes(); }

 private:
  Status tolerate(const KernelCall& call, Status status) {
    if (status || !sink_.lenient || status.error().code == ErrorCode::cancelled) return status;
    if (sink_.failures++ == 0) sink_.first_failure = status;
    const auto same = [&](const FailedChoice& failed) {
      return failed.op == call.op && failed.choice == call.choice;
    };
    std::vector<FailedChoice>& failed = sink_.pass->failed;
    if (std::none_of(failed.begin(), failed.end(), same)) failed.push_back({call.op, call.choice});
    return Ok{};
  }

#ifdef SUPERNEURONS_CUDA
  void push(const KernelCall& call) {
    if (sink_.tagged) CuptiCollector::push_tag(make_tag(call.training_step, call.op));
  }
  void pop() {
    if (sink_.tagged) CuptiCollector::pop_tag();
  }
#else
  void push(const KernelCall&) {}
  void pop() {}
#endif
  std::unique_ptr<Kernels> inner_;
  Sink& sink_;
};

struct Passes::Placed {
  Plan plan;
  Placement placement;
};

namespace {

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

void set_choices(Plan& plan, const std::vector<std::uint32_t>& choice_of) {
  for (PlanStep& step : plan.steps)
    if (step.kind == StepKind::run) step.choice = choice_of[step.subject];
}

}  // namespace

std::vector<Nanoseconds> Pass::spans(std::size_t op, int warmup, bool on_cuda) const {
  if (on_cuda) return seen_spans(device, op, warmup);
  std::vector<Nanoseconds> spans;
  for (auto step = static_cast<std::size_t>(warmup); step < issue.size(); ++step)
    spans.push_back(issue[step][op]);
  return spans;
}

Passes::Passes(const RecordOptions& options, const MakePlan& make_plan, Bytes memory)
    : options_(options), make_plan_(make_plan), memory_(memory), sink_(std::make_unique<Sink>()) {}

Passes::~Passes() = default;

Status Passes::reserve(const Trace& trace) {
  auto plan = make_plan_(trace, memory_);
  if (!plan) return plan.error();
  plan_ = std::move(*plan);
  if (const auto violation = check(trace, plan_)) return to_error(*violation);
  auto placement = place(trace, plan_, memory_);
  if (!placement) return placement.error();
  arena_ = placement->placed_peak;
  pool_ = placement->host_peak;
  return Ok{};
}

Result<Passes::Placed> Passes::placed(const Trace& trace,
                                      const std::vector<std::uint32_t>& choice_of) {
  Plan plan = plan_;
  set_choices(plan, choice_of);
  auto placement = place(trace, plan, memory_);
  if (!placement && placement.error().code == ErrorCode::does_not_fit) {
    Trace chosen = trace;
    for (std::size_t i = 0; i < chosen.ops.size(); ++i) chosen.ops[i].recorded = choice_of[i];
    auto made = make_plan_(chosen, memory_);
    if (!made) return made.error();
    plan = std::move(*made);
    if (const auto violation = check(chosen, plan)) return to_error(*violation);
    placement = place(trace, plan, memory_);
  }
  if (!placement) return placement.error();
  return Placed{std::move(plan), std::move(*placement)};
}

/// The backend in hand where it is large enough. On the host it costs nothing to take another.
Status Passes::take(const Placed& placed) {
  const Bytes arena = placed.placement.placed_peak, pool = placed.placement.host_peak;
  if (backend_ && options_.on_cuda && arena <= arena_ && pool <= pool_) return Ok{};
  backend_.reset();
  arena_ = std::max(arena_, arena);
  pool_ = std::max(pool_, pool);
  auto backend = make_backend(
      std::make_unique<TimedKernels>(native_kernels(options_.on_cuda), *sink_), options_.on_cuda,
      {.arena = arena_, .host_pool = pool_, .seed = options_.seed, .stop = options_.stop});
  if (!backend) return backend.error();
  backend_ = std::move(*backend);
  return Ok{};
}

Result<Pass> Passes::run(const Trace& trace, const std::vector<std::uint32_t>& choice_of,
                         const PassOptions& how) {
  const auto chosen = placed(trace, choice_of);
  if (!chosen) return chosen.error();
  if (Status taken = take(*chosen); !taken) return taken.error();
  const Program program = build_program(trace, chosen->plan, chosen->placement);

  Pass pass;
  pass.issue.assign(static_cast<std::size_t>(how.steps),
                    std::vector<Nanoseconds>(trace.ops.size()));
  const bool tagged = how.traced && options_.on_cuda;
  *sink_ = {.pass = &pass, .tagged = tagged, .lenient = how.lenient};
  if (Status status = backend_->prepare(trace, program); !status) return status.error();
  if (Status status = initialise_homes(trace, chosen->placement, *backend_); !status)
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
      execute(trace, program, *backend_,
              {.training_steps = how.steps, .prepared = true, .stop = options_.stop});
#ifdef SUPERNEURONS_CUDA
  if (collector) {
    auto log = collector->stop();
    if (!log) return log.error();
    pass.log = std::move(*log);
    pass.device = attribute(pass.log, how.steps, trace.ops.size());
    pass.losses = losses_of(pass.log, pass.device, how.warmup);
  }
#endif
  if (!executed) return executed.error();
  // Where half of all that was issued fails, it is not the choices that are to blame.
  if (2 * sink_->failures > trace.ops.size() * static_cast<std::size_t>(how.steps))
    return sink_->first_failure.error();
  pass.measured = backend_->measured();
  return pass;
}

}  // namespace superneurons
