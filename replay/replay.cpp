#include "replay/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "ir/check.h"
#include "ir/dataflow.h"
#include "memory/allocator.h"
#include "memory/placement.h"
#include "replay/loss_probe.h"
#include "simulator/execute.h"

namespace superneurons {
namespace {

/// Wide enough for a kernel that runs one vector or one warp past its end.
constexpr Bytes kGuard = kAllocationUnit;
constexpr Bytes kEndlessArena{std::int64_t{1} << 62};

Result<std::unique_ptr<Kernels>> make_kernels(const ReplayOptions& options) {
  const SurrogateMode mode =
      options.kernels == KernelSet::verify ? SurrogateMode::verify : SurrogateMode::timed;
  const bool native = options.kernels == KernelSet::native;
  if (!options.on_cuda)
    return native ? make_host_native_kernels() : make_host_surrogate_kernels(mode);
#ifdef SUPERNEURONS_CUDA
  return native ? make_cuda_native_kernels() : make_cuda_surrogate_kernels(mode);
#else
  return Error{ErrorCode::bad_usage, "this superneurons was built without CUDA (replay on host)"};
#endif
}

bool is_state(const Tensor& tensor) {
  return tensor.role == Role::parameter || tensor.role == Role::buffer ||
         tensor.role == Role::optimizer_state;
}

/// A carried tensor between training steps.
struct Home {
  Carry carry;
  Space space = Space::device;
  Range range;
};

/// Homes in the order of trace.carry, those that live nowhere left out.
std::vector<Home> homes_of(const Trace& trace, const Plan& plan, const Placement& placement) {
  std::vector<Home> homes;
  for (std::size_t i = 0; i < trace.carry.size() && i < plan.begin.size(); ++i) {
    if (plan.begin[i].place == Place::nowhere) continue;
    if (homes.size() == placement.homes.size()) break;
    const Allocation& home = placement.homes[homes.size()];
    homes.push_back({trace.carry[i], home.space, home.range});
  }
  return homes;
}

/// Tensors whose values say whether two runs ended alike: what training is for, or whatever the
/// next training step needs where no tensor has such a role.
std::vector<bool> compared(const Trace& trace) {
  const Dataflow flow = analyze(trace);
  const bool state = has_state(trace);
  std::vector<bool> result(trace.tensors.size(), false);
  for (const Carry& carry : trace.carry)
    result[carry.end.index] = state ? is_state(trace[carry.end]) : flow[carry.end].needed_at_end;
  return result;
}

Result<Checksums> checksums_of(const Trace& trace, const std::vector<Home>& homes,
                               ReplayBackend& backend) {
  const std::vector<bool> wanted = compared(trace);
  Checksums checksums;
  for (const Home& home : homes) {
    if (!wanted[home.carry.end.index]) continue;
    const Result<std::uint64_t> value = backend.checksum(home.space, home.range);
    if (!value) return value.error();
    checksums.tensors.push_back(home.carry.end);
    checksums.values.push_back(*value);
  }
  return checksums;
}

Result<Placement> place_for_replay(const Trace& trace, const Plan& plan, bool guards) {
  if (!guards) return place(trace, plan, plan.budget.device);
  return place(trace, plan, kEndlessArena, {.guard = kGuard});
}

/// The contents of options.inputs in a training step, for their homes.
Result<std::vector<Fed>> fed(const Trace& trace, const std::vector<Home>& homes,
                             const InputSource& inputs, int training_step) {
  std::vector<Fed> result;
  for (std::size_t i = 0; i < inputs.tensors.size(); ++i) {
    const auto home = std::find_if(homes.begin(), homes.end(), [&](const Home& each) {
      return each.carry.start == inputs.tensors[i];
    });
    if (home == homes.end())
      return Error{ErrorCode::bad_usage,
                   trace[inputs.tensors[i]].name + " is fed, but not kept between training steps"};
    Fed input{home->space, home->range, {}};
    input.content.resize(static_cast<std::size_t>(trace[inputs.tensors[i]].bytes.count));
    inputs.write(training_step, i, input.content);
    result.push_back(std::move(input));
  }
  return result;
}

Status read_values(const Trace& trace, const std::vector<Home>& homes, ReplayBackend& backend,
                   Run& run) {
  for (const Home& home : homes) {
    const Range whole{home.range.offset, trace[home.carry.end].bytes};
    std::vector<std::byte> content(static_cast<std::size_t>(whole.bytes.count));
    if (Status s = backend.read(home.space, whole, content.data()); !s) return s;
    run.values.emplace_back(home.carry.start, std::move(content));
  }
  return Ok{};
}

/// Fills the homes, executes and reads back.
Result<Run> run_on(ReplayBackend& backend, const Trace& trace, const Program& program,
                   const std::vector<Home>& homes, const ReplayOptions& options) {
  for (const Home& home : homes)
    if (Status s = backend.initialise(trace, home.carry.start, home.space, home.range); !s)
      return s.error();
  ExecuteOptions how{.training_steps = options.training_steps, .stop = options.stop};
  if (options.inputs != nullptr)
    how.begun = [&](int training_step) -> Status {
      Result<std::vector<Fed>> inputs = fed(trace, homes, *options.inputs, training_step);
      return inputs ? backend.feed(*std::move(inputs)) : Status(inputs.error());
    };
  if (options.progress != nullptr) {
    options.progress->done = 0;
    options.progress->commands =
        static_cast<std::int64_t>(program.commands.size()) * options.training_steps;
  }
  if (Status status = execute(trace, program, backend, how); !status) return status.error();
  if (Status status = backend.check_guards(); !status) return status.error();
  Run run;
  Result<Checksums> checksums = checksums_of(trace, homes, backend);
  if (!checksums) return checksums.error();
  run.checksums = *std::move(checksums);
  run.measured = backend.measured();
  if (options.keep_values)
    if (Status status = read_values(trace, homes, backend, run); !status) return status.error();
  return run;
}

}  // namespace

bool has_state(const Trace& trace) {
  return std::any_of(trace.carry.begin(), trace.carry.end(),
                     [&](const Carry& carry) { return is_state(trace[carry.end]); });
}

Result<Run> run_unchecked_plan(const Trace& trace, const Plan& plan, const ReplayOptions& options) {
  if (options.training_steps < 1)
    return Error{ErrorCode::bad_usage, "a replay needs at least one training step"};
  const Result<Placement> placement = place_for_replay(trace, plan, options.guards);
  if (!placement) return placement.error();
  const Program program = build_program(trace, plan, *placement, {.poison_freed = options.stress});

  Result<std::unique_ptr<Kernels>> made = make_kernels(options);
  if (!made) return made.error();
  std::unique_ptr<Kernels> kernels = *std::move(made);
  Losses losses;
  if (options.kernels == KernelSet::native)
    kernels =
        probe_loss(std::move(kernels), trace, options.training_steps, options.on_cuda, losses);

  ReplayBackendOptions how;
  how.arena = options.guards ? placement->placed_peak : plan.budget.device;
  how.host_pool = placement->host_peak;
  how.guard = options.guards ? kGuard : Bytes{};
  how.stress = options.stress;
  how.keep_spans = options.keep_spans;
  how.spans_from = options.training_steps - 1;
  how.seed = options.seed;
  how.stop = options.stop;
  how.progress = options.progress;
  Result<std::unique_ptr<ReplayBackend>> backend =
      make_backend(std::move(kernels), options.on_cuda, how);
  if (!backend) return backend.error();
  Result<Run> run = run_on(**backend, trace, program, homes_of(trace, plan, *placement), options);
  if (run) run->losses = losses.values;
  return run;
}

Result<Run> run_plan(const Trace& trace, const Plan& plan, const ReplayOptions& options) {
  if (const std::optional<Violation> violation = check(trace, plan)) return to_error(*violation);
  return run_unchecked_plan(trace, plan, options);
}

std::optional<std::size_t> difference(const std::vector<float>& reference,
                                      const std::vector<float>& losses) {
  const std::size_t both = std::min(reference.size(), losses.size());
  for (std::size_t i = 0; i < both; ++i)
    if (std::memcmp(&reference[i], &losses[i], sizeof losses[i]) != 0) return i;
  if (reference.size() != losses.size()) return both;
  return std::nullopt;
}

std::string difference(const Trace& trace, const Checksums& reference, const Checksums& run) {
  for (std::size_t i = 0; i < std::max(reference.tensors.size(), run.tensors.size()); ++i) {
    if (i >= run.tensors.size())
      return trace[reference.tensors[i]].name + ": only the reference has it";
    const std::string& name = trace[run.tensors[i]].name;
    if (i >= reference.tensors.size() || reference.tensors[i] != run.tensors[i])
      return name + ": the reference has another tensor there";
    if (reference.values[i] != run.values[i])
      return fmt::format("{}: {:016x} where the reference has {:016x}", name, run.values[i],
                         reference.values[i]);
  }
  return "";
}

}  // namespace superneurons
