#include "tracer/record.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <optional>

#include "ir/files.h"
#include "memory/allocator.h"
#include "memory/placement.h"
#include "replay/host_choices.h"
#include "tracer/choice_rounds.h"
#include "tracer/passes.h"
#ifdef SUPERNEURONS_CUDA
#include "replay/cuda/choices.h"
#include "replay/cuda/cuda_memory.h"
#endif

namespace superneurons {
namespace {

constexpr Bytes kEndless{std::int64_t{1} << 60};

/// Beside the arena: the handles, modules and workspaces of cuDNN and cuBLAS.
[[maybe_unused]] constexpr Bytes kLibraries = 2048_MiB;

Result<Bytes> memory_for(const RecordOptions& options) {
  if (options.device_memory.count > 0) return options.device_memory;
#ifdef SUPERNEURONS_CUDA
  if (options.on_cuda) {
    const auto free = free_device_memory();
    if (!free) return free.error();
    return std::max(*free - kLibraries, kAllocationUnit);
  }
#endif
  return kEndless;
}

Result<Plan> keep_all(const Trace& trace, Bytes) {
  Plan plan = keep_all_plan(trace);
  plan.budget = {kEndless, {}};
  return plan;
}

/// Leaves out choices that want more workspace. An op of which none is left that repeats its
/// results keeps the one such choice that wants least.
void limit_workspaces(Trace& trace, Bytes limit) {
  for (Op& op : trace.ops) {
    const auto fits = [&](const Choice& choice) { return choice.workspace <= limit; };
    std::size_t least = op.recorded;
    for (std::size_t i = 0; i < op.choices.size(); ++i)
      if (op.choices[i].deterministic && op.choices[i].workspace < op.choices[least].workspace)
        least = i;
    std::size_t recorded = op.recorded;
    if (!fits(op.choices[recorded])) recorded = least;
    std::vector<Choice> kept;
    for (std::size_t i = 0; i < op.choices.size(); ++i) {
      if (i == recorded) op.recorded = static_cast<std::uint32_t>(kept.size());
      if (i == recorded || fits(op.choices[i])) kept.push_back(op.choices[i]);
    }
    op.choices = std::move(kept);
  }
}

/// Each op records its choice of the largest workspace.
Trace with_largest_workspaces(Trace trace) {
  for (Op& op : trace.ops)
    for (std::uint32_t i = 0; i < op.choices.size(); ++i)
      if (op.choices[i].workspace > op.choices[op.recorded].workspace) op.recorded = i;
  return trace;
}

Status placed_within(const Trace& trace, const Plan& plan, Bytes memory) {
  const auto placement = place(trace, plan, memory);
  return placement ? Status(Ok{}) : Status(placement.error());
}

/// What to record under: the plans that disturb least come first, each with all the workspace that
/// is wanted, then with less.
struct Ground {
  Passes::MakePlan make_plan;
  std::string fallback;  // "" for keep_all
  Bytes limit{};         // of workspaces
};

/// Finds the first that fits; leaves out of the trace the choices for which there is no room.
Result<Ground> settle(Trace& trace, const RecordOptions& options, Bytes memory) {
  std::vector<Ground> grounds = {{keep_all, "", {}}};
  for (const RecordFallback& fallback : options.fallbacks)
    grounds.push_back({fallback.plan, fallback.name, {}});
  std::optional<Error> refusal;
  for (Ground& ground : grounds)
    for (const Bytes limit : {options.workspace_limit, 1024_MiB, 256_MiB, 64_MiB, 0_B}) {
      if (limit > options.workspace_limit) continue;
      if (limit == 0_B && ground.fallback != grounds.back().fallback) continue;
      Trace trimmed = trace;
      limit_workspaces(trimmed, limit);
      const Trace largest = with_largest_workspaces(trimmed);
      const auto plan = ground.make_plan(largest, memory);
      const Status placed = plan ? placed_within(largest, *plan, memory) : Status(plan.error());
      if (placed) {
        trace = std::move(trimmed);
        ground.limit = limit;
        return std::move(ground);
      }
      if (placed.error().code != ErrorCode::does_not_fit) return placed.error();
      if (!refusal) refusal = placed.error();
    }
  refusal->message =
      fmt::format("{} does not fit {} of device memory{}: {}", trace.name, format_bytes(memory),
                  options.fallbacks.empty() ? " without a policy" : "", refusal->message);
  return *refusal;
}

/// 0 for an op that does nothing on the device.
Nanoseconds median_or_zero(const std::vector<Nanoseconds>& spans) {
  return spans.empty() ? Nanoseconds{} : median(spans);
}

/// Measured training steps per round of choices: those asked for, fewer where a network is so deep
/// that each choice is seen at many places anyway.
int round_steps(const Trace& trace, const RecordOptions& options) {
  constexpr std::size_t kMostOps = 60'000;  // per round
  const auto most = static_cast<int>(kMostOps / std::max<std::size_t>(trace.ops.size(), 1));
  const int wanted = options.choice_steps > 0 ? options.choice_steps : options.traced_steps;
  return std::min(wanted, std::max(most, 2));
}

/// Runs whole training steps in which the ops take this choice and that, so that each is timed
/// between real neighbours and not warm in cache (tracer/choice_rounds.h).
Status measure_choices(Trace& trace, Passes& passes, const RecordOptions& options, Losses& losses) {
  ChoiceRounds rounds(trace);
  const int steps = round_steps(trace, options);
  const std::size_t total = rounds.left();
  int warmup = options.warmup_steps;
  for (std::size_t round = 1; rounds.left() > 0; ++round) {
    if (options.progress) options.progress(fmt::format("choices: round {} of {}", round, total));
    const std::vector<std::uint32_t> choice_of = rounds.next();
    const auto pass =
        passes.run(trace, choice_of,
                   {.steps = warmup + steps, .warmup = warmup, .traced = true, .lenient = true});
    if (!pass) return pass.error();
    losses += pass->losses;
    for (std::uint32_t op = 0; op < trace.ops.size(); ++op)
      for (const Nanoseconds span : pass->spans(op, warmup, options.on_cuda))
        rounds.add({op}, choice_of[op], span);
    for (const FailedChoice& failed : pass->failed) rounds.drop(failed.op, failed.choice);
    warmup = std::min(options.warmup_steps, 1);  // the device is warm, the libraries are loaded
  }
  return rounds.store(trace);
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
        median_or_zero(pass.spans(i, options.warmup_steps, options.on_cuda));
    if (!options.on_cuda) continue;
    op.kernels.clear();
    for (const DeviceActivity& part : last_seen(pass.device, i).parts)
      op.kernels.push_back({pass.log.names[part.name], part.end - part.start});
  }
  trace.step_ns_traced = median_step(pass.measured.steps, options.warmup_steps);
  trace.owned_ns = pass.device.owned_ns;
  trace.orphan_ns = pass.device.orphan_ns;
  trace.orphans = static_cast<std::int64_t>(pass.device.orphans);
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

/// What a reader of the times should know.
std::string circumstances(const Ground& ground, const RecordOptions& options, Bytes memory) {
  std::string text;
  if (!ground.fallback.empty())
    text += fmt::format(
        "; recorded under {} in {}, as keep_all does not fit: training steps are of "
        "that plan, and ops beside its copies may have taken longer",
        ground.fallback, format_bytes(memory));
  if (ground.limit < options.workspace_limit)
    text += fmt::format("; choices of more than {} of workspace do not fit and are left out",
                        format_bytes(ground.limit));
  return text;
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
  const auto memory = memory_for(options);
  if (!memory) return memory.error();
  const auto ground = settle(trace, options, *memory);
  if (!ground) return ground.error();
  Passes passes(options, ground->make_plan, *memory);
  if (Status status = passes.reserve(with_largest_workspaces(trace)); !status)
    return status.error();
  Losses losses;
  if (options.choices)
    if (Status status = measure_choices(trace, passes, options, losses); !status)
      return status.error();
  const auto choices = recorded_choices(trace);
  const int warmup = options.warmup_steps;
  if (options.progress) options.progress("untraced training steps");
  const auto untraced =
      passes.run(trace, choices, {.steps = warmup + options.untraced_steps, .warmup = warmup});
  if (!untraced) return untraced.error();
  if (options.progress) options.progress("traced training steps");
  const auto traced = passes.run(
      trace, choices, {.steps = warmup + options.traced_steps, .warmup = warmup, .traced = true});
  if (!traced) return traced.error();
  losses += traced->losses;
  store_traced(trace, *traced, options);
  store_untraced(trace, *untraced, options);
  set_capabilities(trace, options, losses);
  trace.dropped_records = losses.dropped;
  trace.origin = options.origin;
  if (options.on_cuda) trace.origin += "; " + describe(losses);
  trace.origin += circumstances(*ground, options, *memory);
  return trace;
}

Nanoseconds median_step(const std::vector<Nanoseconds>& steps, int warmup) {
  if (static_cast<int>(steps.size()) <= warmup) return {};
  return median({steps.begin() + warmup, steps.end()});
}

}  // namespace superneurons
