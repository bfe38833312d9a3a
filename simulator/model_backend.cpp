#include "simulator/model_backend.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "ir/check.h"
#include "simulator/execute.h"
#include "simulator/model_clock.h"
#include "simulator/program_time.h"

namespace superneurons {
namespace {

/// Bound by device memory rather than by arithmetic; so is what nobody knows.
bool is_memory_bound(const Op& op, const Choice& choice, const DeviceProfile& profile) {
  const double flops_per_ns = choice.math == "tf32" && profile.tf32_flops_per_ns > 0
                                  ? profile.tf32_flops_per_ns
                                  : profile.flops_per_ns;
  if (!(op.flops > 0) || op.bytes_moved.count <= 0 || !(flops_per_ns > 0) ||
      !(profile.memory_bytes_per_ns > 0))
    return true;
  return static_cast<double>(op.bytes_moved.count) / profile.memory_bytes_per_ns >=
         op.flops / flops_per_ns;
}

/// Of one op, whose launches may take the host a second each; far above any real op.
inline constexpr std::int64_t kMostKernels = 1 << 20;

inline constexpr std::uint32_t kNoCommand = static_cast<std::uint32_t>(-1);

/// What one command costs host and stream; the same in every training step.
struct Cost {
  Job job;
  std::int64_t host = 0;
  bool host_sync = false;  // the host waits for its end
};

class Model final : public ModelBackend {
 public:
  Model(const DeviceProfile& profile, const ModelOptions& options)
      : profile_(profile), options_(options), clock_(profile) {}

  Status prepare(const Trace& trace, const Program& program) override {
    program_ = &program;
    clock_ = ModelClock(profile_);
    host_now_ = 0;
    awaits_feed_ = {};
    recorded_.assign(program.events, {});
    costs_.clear();
    costs_.reserve(program.commands.size());
    for (const Command& command : program.commands) costs_.push_back(cost_of(trace, command));
    if (options_.clock == Clock::program) join_launches(trace);
    return Ok{};
  }

  Status begin_training_step(int training_step) override {
    training_step_ = static_cast<std::uint32_t>(training_step);
    clock_.begin_training_step();
    feed();
    return Ok{};
  }

  Status wait(Stream, const Wait& wait) override {
    pass(profile_.event_ns.count);
    const Recorded& recorded = recorded_[wait.event];
    if (recorded.any) clock_.add_wait({wait.source, wait.cause, recorded.position});
    return Ok{};
  }

  Status run(const Issue& issue) override { return submit(issue); }
  Status copy(const Issue& issue) override { return submit(issue); }

  Status record(Stream stream, std::uint32_t event) override {
    pass(profile_.event_ns.count);
    recorded_[event] = {last_[static_cast<std::size_t>(stream)], true};
    return Ok{};
  }

  Status end_training_step(int) override {
    clock_.advance(host_now_);
    return Ok{};
  }

  Status sync() override {
    clock_.drain();
    return Ok{};
  }

  Timeline timeline() const override;
  Nanoseconds step_time(std::size_t step) const;

 private:
  struct Recorded {
    std::uint32_t position = 0;
    bool any = false;
  };

  Cost cost_of(const Trace& trace, const Command& command) const;
  std::int64_t issue_time(const Op& op) const;

  /// A barrier between two training steps: inputs come when all streams are done with the step
  /// before, on the compute stream, and the others wait for them.
  void feed() {
    if (options_.fed.empty()) return;
    for (const Stream of : {Stream::offload, Stream::prefetch}) {
      if (!clock_.jobs(of).empty())
        clock_.add_wait({of, Cause::tail, last_[static_cast<std::size_t>(of)]});
      awaits_feed_[static_cast<std::size_t>(of)] = true;
    }
    pass(profile_.event_ns.count);
    for (const Bytes bytes : options_.fed) {
      pass(profile_.copy_issue_ns.count);
      Job job;
      job.issued = host_now_;
      job.nominal = transfer_time(profile_.prefetch, bytes).count;
      job.command = kNoCommand;
      job.training_step = training_step_;
      fed_ = clock_.submit(Stream::compute, job);
      last_[static_cast<std::size_t>(Stream::compute)] = fed_;
    }
  }

  /// A run right behind that of the op before, of the same launch, follows without a gap.
  void join_launches(const Trace& trace) {
    const Command* before = nullptr;
    for (std::size_t i = 0; i < costs_.size(); ++i) {
      const Command& command = program_->commands[i];
      if (command.kind != CommandKind::run) continue;
      costs_[i].job.joined = before != nullptr && before->subject + 1 == command.subject &&
                             is_joined(trace, command.subject) && !command.rerun && !before->rerun;
      before = &command;
    }
  }

  /// Time of the host.
  void pass(std::int64_t ns) { host_now_ = later({host_now_}, {ns}).count; }

  Status submit(const Issue& issue) {
    const auto index = static_cast<std::uint32_t>(&issue.command - program_->commands.data());
    const Cost& cost = costs_[index];
    pass(cost.host);
    Job job = cost.job;
    job.issued = host_now_;
    job.command = index;
    job.training_step = training_step_;
    const auto lane = static_cast<std::size_t>(issue.command.stream);
    if (std::exchange(awaits_feed_[lane], false))
      clock_.add_wait({Stream::compute, Cause::prefetch, fed_});
    const std::uint32_t position = clock_.submit(issue.command.stream, job);
    last_[lane] = position;
    if (cost.host_sync)
      host_now_ = std::max(later({host_now_}, profile_.event_ns).count,
                           clock_.finish(issue.command.stream, position));
    return Ok{};
  }

  /// When the step's last kernel ended; 0 for the time before the first.
  std::int64_t end_before(std::size_t step) const {
    std::int64_t end = 0;
    for (std::size_t i = 0; i < step; ++i) end = std::max(end, clock_.steps()[i].end);
    return end;
  }

  const DeviceProfile profile_;
  const ModelOptions options_;
  const Program* program_ = nullptr;
  ModelClock clock_;
  std::vector<Cost> costs_;                                // by command
  std::vector<Recorded> recorded_;                         // by event: where it was recorded last
  std::array<std::uint32_t, kStreamNames.size()> last_{};  // position of the last job submitted
  std::array<bool, kStreamNames.size()> awaits_feed_{};    // its first job of the training step
  std::uint32_t fed_ = 0;                                  // position of the last input's copy
  std::uint32_t training_step_ = 0;
  std::int64_t host_now_ = 0;
};

/// Of the replay's own kernels: their launches.
std::int64_t Model::issue_time(const Op& op) const {
  const auto kernels = std::clamp<std::int64_t>(op.kernels.size(), 1, kMostKernels);
  return profile_.launch_ns.count * kernels;
}

Cost Model::cost_of(const Trace& trace, const Command& command) const {
  Cost cost;
  if (command.kind == CommandKind::run) {
    const Op& op = trace.ops[command.subject];
    const Choice& choice = op.choices[command.choice];
    cost.job.nominal = choice.ns.count;
    cost.job.memory_bound = is_memory_bound(op, choice, profile_);
    const bool of_program = options_.clock == Clock::program;
    if (of_program) cost.job.nominal = program_time(op, command.choice, profile_).count;
    cost.host = of_program ? op.host_ns.count : issue_time(op);
    cost.host_sync = of_program && op.host_sync_ns.count > 0 && !command.rerun;
    return cost;
  }
  if (command.kind == CommandKind::poison) {
    const auto bytes = static_cast<double>(command.device.bytes.count);
    if (profile_.memory_bytes_per_ns > 0)
      cost.job.nominal = std::llround(
          std::min(bytes / profile_.memory_bytes_per_ns, static_cast<double>(kLatest.count)));
    cost.host = profile_.launch_ns.count;
    return cost;
  }
  // The curve gives the time alone; what the asymptotic bandwidth does not explain is latency.
  const TransferCurve& curve =
      command.kind == CommandKind::copy_out ? profile_.offload : profile_.prefetch;
  const Bytes bytes = trace.tensors[command.subject].bytes;
  cost.job.nominal = transfer_time(curve, bytes).count;
  if (curve.bytes_per_ns > 0) {
    const auto moving = static_cast<double>(bytes.count) / curve.bytes_per_ns;
    if (moving < static_cast<double>(cost.job.nominal))
      cost.job.latency = cost.job.nominal - std::llround(moving);
  }
  cost.host = profile_.copy_issue_ns.count;
  return cost;
}

Nanoseconds Model::step_time(std::size_t step) const {
  return {end_before(step + 1) - end_before(step)};
}

Timeline Model::timeline() const {
  Timeline result;
  const auto& steps = clock_.steps();
  if (steps.empty()) return result;
  const StepAccount& account = steps.back();
  const std::size_t last = steps.size() - 1;
  const std::int64_t begin = end_before(last);
  result.step_ns = step_time(last);
  result.compute_ns = {account.compute};
  for (std::size_t i = 0; i < account.stall.size(); ++i) result.stall_ns[i] = {account.stall[i]};
  if (last == 0) {
    const Nanoseconds tail{std::max<std::int64_t>(account.copies_end - end_before(1), 0)};
    result.stall_ns[static_cast<std::size_t>(Cause::tail)] += tail;
    result.step_ns += tail;
  }
  if (!options_.keep_spans) return result;
  result.spans.resize(program_->commands.size());
  for (std::size_t stream = 0; stream < kStreamNames.size(); ++stream) {
    const auto& jobs = clock_.jobs(static_cast<Stream>(stream));
    for (auto job = jobs.rbegin(); job != jobs.rend() && job->training_step == last; ++job)
      if (job->command != kNoCommand)
        result.spans[job->command] = {job->command, {job->start - begin}, {job->end - begin}};
  }
  return result;
}

inline constexpr int kSteps = 3;      // the first is the opening one, the other two should agree
inline constexpr int kMostSteps = 6;  // if they do not

}  // namespace

std::unique_ptr<ModelBackend> make_model_backend(const DeviceProfile& profile,
                                                 const ModelOptions& options) {
  return std::make_unique<Model>(profile, options);
}

Result<Timeline> simulate_program(const Trace& trace, const Program& program,
                                  const DeviceProfile& profile, const ModelOptions& options) {
  Model model(profile, options);
  for (const int steps : {kSteps, kMostSteps}) {
    if (Status done =
            execute(trace, program, model, {.training_steps = steps, .stop = options.stop});
        !done)
      return std::move(done.error());
    const std::int64_t time = model.step_time(static_cast<std::size_t>(steps) - 1).count;
    const std::int64_t before = model.step_time(static_cast<std::size_t>(steps) - 2).count;
    if (std::abs(time - before) <= time / 10000) break;
  }
  return model.timeline();
}

Result<Timeline> simulate(const Trace& trace, const Plan& plan, const DeviceProfile& profile,
                          const ModelOptions& options) {
  if (const auto violation = check(trace, plan)) return to_error(*violation);
  Result<Placement> placement = place(trace, plan, plan.budget.device);
  if (!placement) return std::move(placement.error());
  return simulate_program(trace, build_program(trace, plan, *placement), profile, options);
}

}  // namespace superneurons
