// replay T: runs a plan for real; predicted beside measured; equality with the reference.
#include "replay/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/session.h"
#include "ir/files.h"
#include "memory/placement.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

struct Options {
  Target target;
  PlanSource source;
  std::string on = "host";
  std::string kernels;
  std::string json;
  int steps = 3;
  std::uint64_t seed = 1;
  bool stress = false;
  bool guards = false;
  bool no_reference = false;
};

Result<KernelSet> kernel_set(const Options& options, const Trace& trace) {
  if (options.kernels == "native") return KernelSet::native;
  if (options.kernels == "verify") return KernelSet::verify;
  if (options.kernels == "timed") return KernelSet::timed;
  if (options.kernels.empty())
    return trace.capability(Fact::native) == Capability::none ? KernelSet::verify
                                                              : KernelSet::native;
  return Error{
      .code = ErrorCode::bad_usage,
      .message = fmt::format("--kernels '{}' is none of native, verify, timed", options.kernels)};
}

Nanoseconds middle(std::vector<Nanoseconds> steps, int warmup) {
  if (static_cast<int>(steps.size()) <= warmup) return {};
  std::sort(steps.begin() + warmup, steps.end());
  return steps[(static_cast<std::size_t>(warmup) + steps.size()) / 2];
}

/// A prediction made for one device says nothing of another; peak and equality still hold.
bool comparable(const Options& options, const Loaded& loaded) {
  return options.on == "cuda" && loaded.profile.measured &&
         loaded.trace.device == loaded.profile.device;
}

void print_measured(const Outcome& outcome, const Run& run, bool comparable_time) {
  fmt::print("measured peak {} (predicted {}), host {}\n", format_bytes(run.measured.peak),
             format_bytes(outcome.placed_peak_bytes), format_bytes(run.measured.host_peak));
  fmt::print("memory outside the arena {}\n", format_bytes(run.measured.outside));
  if (comparable_time && outcome.measured_step_ns->count > 0)
    fmt::print("training step measured {} predicted {} ({:+.1f} %)\n",
               format_time(*outcome.measured_step_ns), format_time(outcome.step_ns),
               100.0 * (static_cast<double>(outcome.step_ns.count) /
                            static_cast<double>(outcome.measured_step_ns->count) -
                        1));
  else
    fmt::print(
        "training step measured {} (no prediction: the trace and the profile are not of this "
        "machine)\n",
        format_time(*outcome.measured_step_ns));
  for (std::size_t i = 0; i < run.losses.size(); ++i)
    fmt::print("loss of training step {}: {:.6g}\n", i + 1, run.losses[i]);
}

Status replay(const Options& options, const Session& session) {
  const auto loaded = load(options.target);
  if (!loaded) return loaded.error();
  const Trace& trace = loaded->trace;
  const auto on_cuda = wants_cuda(options.on);
  if (!on_cuda) return on_cuda.error();
  const auto kernels = kernel_set(options, trace);
  if (!kernels) return kernels.error();
  auto plan = plan_from(options.source, options.target, *loaded, session);
  if (!plan) return plan.error();
  auto outcome = evaluate(trace, *plan, loaded->profile);
  if (!outcome) return outcome.error();

  // The arena is the budget, except that memory nobody needs is not taken from this machine.
  plan->budget.device = std::min(plan->budget.device, outcome->placed_peak_bytes);
  const ReplayOptions how{.on_cuda = *on_cuda,
                          .kernels = *kernels,
                          .training_steps = options.steps,
                          .warmup_steps = std::min(1, options.steps - 1),
                          .seed = options.seed,
                          .stress = options.stress,
                          .guards = options.guards,
                          .stop = &session.stop};
  const auto run = run_plan(trace, *plan, how);
  if (!run) return run.error();
  outcome->measured_step_ns = middle(run->measured.steps, how.warmup_steps);
  outcome->measured_peak_bytes = run->measured.peak;
  outcome->outside_bytes = run->measured.outside;
  fmt::print("{}", format_outcome(*outcome));
  print_measured(*outcome, *run, comparable(options, *loaded));

  Status equal = Ok{};
  if (!options.no_reference) {
    ReplayOptions plain = how;
    plain.stress = plain.guards = false;
    const auto reference = run_plan(trace, reference_plan(trace, *plan), plain);
    if (!reference) return reference.error();
    const std::string different = difference(trace, reference->checksums, run->checksums);
    outcome->equal = different.empty();
    if (different.empty())
      fmt::print(
          "equal: {} checksums of parameters, buffers and optimizer state after {} training "
          "steps\n",
          run->checksums.values.size(), options.steps);
    else equal = Error{.code = ErrorCode::not_equal, .message = "not equal: " + different};
  }
  if (Status status = write_json(options.json,
                                 format_json({&*outcome, 1}, {{"command", session.command_line}}));
      !status)
    return status;
  if (equal && !options.guards && run->measured.peak != outcome->placed_peak_bytes)
    return Error{
        .code = ErrorCode::not_equal,
        .message = fmt::format("measured peak {} differs from the predicted {}",
                               run->measured.peak.count, outcome->placed_peak_bytes.count)};
  return equal;
}

}  // namespace

void add_replay_command(CLI::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, session, "replay",
                              "run a plan for real and compare its results with the reference",
                              [options, &session] { return replay(*options, session); });
  add_target_options(*command, options->target);
  add_plan_options(*command, options->source);
  command->add_option("--on", options->on, "host or cuda")->capture_default_str();
  command->add_option(
      "--kernels", options->kernels,
      "native, verify (surrogates that read and write every byte) or timed (default: "
      "native where the trace can, else verify)");
  command->add_option("--steps", options->steps, "training steps")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("--seed", options->seed, "of initial values and random ops")
      ->capture_default_str();
  command->add_flag("--stress", options->stress,
                    "random delays on all streams, freed ranges poisoned");
  command->add_flag("--guards", options->guards, "guard bytes around every range");
  command->add_flag("--no-reference", options->no_reference, "do not run the reference");
  command->add_option("--json", options->json, "result to write");
}

}  // namespace superneurons
