// replay T: runs a plan for real; predicted beside measured; equality with the reference.
#include "replay/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cli/session.h"
#include "cli/training.h"
#include "ir/files.h"
#include "memory/placement.h"
#include "replay/inference.h"
#include "replay/reference.h"
#include "simulator/report.h"
#include "tracer/record.h"

namespace superneurons {
namespace {

struct Options {
  Target target;
  PlanSource source;
  std::string on = "host";
  std::string kernels;
  std::string data;
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

/// Why the predicted time says nothing of the measured one, or "": a prediction made for one
/// device and one way of running says nothing of another. Peak and equality hold everywhere.
std::string time_refused(const Options& options, const Loaded& loaded, const ReplayOptions& how) {
  const Trace& trace = loaded.trace;
  const std::string here = machine_device(how.on_cuda);
  if (how.kernels == KernelSet::verify)
    return "the kernels only verify values (--kernels native or timed take the trace's time)";
  if (options.target.scale != "1") return "sizes are scaled, and the times are not";
  if (how.stress || how.guards) return "--stress and --guards slow the run down";
  if (trace.capability(Fact::durations) != Capability::exact)
    return fmt::format("the times of the trace are not measured ({})", trace.origin);
  if (trace.device != here)
    return fmt::format("the trace tells the times of {}, and this is {}",
                       trace.device.empty() ? "no device" : trace.device, here);
  if (!loaded.profile.measured || loaded.profile.device != here)
    return fmt::format("profile {} was not measured on {} (`superneurons calibrate` does that)",
                       loaded.profile.name, here);
  return "";
}

std::string_view what_is_compared(const Trace& trace) {
  return has_state(trace) ? "parameters, buffers and optimizer state"
                          : "what the next training step needs";
}

/// Runs the reference; fills outcome.equal where there is one to compare with and something to
/// compare. Error not_equal with the first difference.
Status compare_with_reference(const Trace& trace, const Plan& plan, const Run& run,
                              ReplayOptions how, Outcome& outcome, Console& console) {
  how.stress = how.guards = false;
  if (how.kernels == KernelSet::timed) {
    console.print("not compared: timed kernels touch only samples (--kernels verify compares)\n");
    return Ok{};
  }
  if (run.checksums.values.empty()) {
    console.print("nothing to compare: no value of this trace outlives its training step\n");
    return Ok{};
  }
  const auto reference = [&] {
    const ReplayWatch watch(console, *how.progress, "reference: ", how.training_steps, false);
    return run_reference(trace, plan, how);
  }();
  if (!reference && reference.error().code == ErrorCode::does_not_fit) {
    console.print(fmt::format("not compared: no reference fits this machine ({})\n",
                              reference.error().message));
    return Ok{};
  }
  if (!reference) return reference.error();
  if (reference->plan.policy != "reference")
    console.print(fmt::format("{} in {}, as there is no room to keep everything\n",
                              reference->plan.policy, format_bytes(reference->plan.budget.device)));
  outcome.reference_losses = reference->run.losses;
  const std::string different = difference(trace, reference->run.checksums, run.checksums);
  const Status losses = compare_losses(outcome);
  outcome.equal = different.empty() && losses;
  if (!losses) return losses;
  if (!different.empty())
    return Error{.code = ErrorCode::not_equal, .message = "not equal: " + different};
  console.print(
      fmt::format("equal: {} checksums of {} after {} training steps are those of the reference\n",
                  run.checksums.values.size(), what_is_compared(trace), how.training_steps));
  if (!run.losses.empty())
    console.print(fmt::format("loss curves are equal to the bit over {} training steps\n",
                              run.losses.size()));
  return Ok{};
}

/// The peak derived from the ranges that kernels and copies got must be the predicted one, to the
/// byte and for every allocator.
Status compare_peaks(const Outcome& outcome, const ReplayOptions& how) {
  if (how.guards || *outcome.measured_peak_bytes == outcome.used_peak_bytes) return Ok{};
  return Error{
      .code = ErrorCode::not_equal,
      .message = fmt::format("measured peak {} B differs from the predicted {} B",
                             outcome.measured_peak_bytes->count, outcome.used_peak_bytes.count)};
}

Result<ReplayOptions> replay_options(const Options& options, const Trace& trace,
                                     const Session& session) {
  const auto on_cuda = wants_cuda(options.on);
  if (!on_cuda) return on_cuda.error();
  const auto kernels = kernel_set(options, trace);
  if (!kernels) return kernels.error();
  return ReplayOptions{.on_cuda = *on_cuda,
                       .kernels = *kernels,
                       .training_steps = options.steps,
                       .warmup_steps = std::min(1, options.steps - 1),
                       .seed = options.seed,
                       .stress = options.stress,
                       .guards = options.guards,
                       .stop = &session.stop};
}

/// What --data trains on; nothing without it.
struct Lessons {
  std::optional<DataSet> data;
  InputSource inputs;
};

Status prepare_lessons(const Options& options, const Trace& trace, ReplayOptions& how,
                       Lessons& lessons) {
  if (options.data.empty()) return Ok{};
  auto data = find_data_set(options.data);
  if (!data) return data.error();
  if (how.kernels != KernelSet::native)
    return Error{.code = ErrorCode::bad_usage, .message = "--data goes with --kernels native"};
  const auto tensors = batch_tensors(trace, *data);
  if (!tensors) return tensors.error();
  lessons.data = *std::move(data);
  lessons.inputs = training_batches(*lessons.data, *tensors, options.seed);
  how.inputs = &lessons.inputs;
  how.keep_values = true;
  return Ok{};
}

/// Of the inputs that come anew with each training step.
std::vector<Bytes> fed_bytes(const Trace& trace, const Lessons& lessons) {
  std::vector<Bytes> bytes;
  for (const TensorId tensor : lessons.inputs.tensors) bytes.push_back(trace[tensor].bytes);
  return bytes;
}

/// How the test images fare with what was learned.
Status test(const Trace& trace, const Run& run, const Lessons& lessons, const Session& session,
            Outcome& outcome) {
  if (!lessons.data) return Ok{};
  const auto accuracy = test_accuracy(trace, run, *lessons.data, &session.stop);
  if (!accuracy) return accuracy.error();
  outcome.data = lessons.data->name;
  outcome.test_images = accuracy->images;
  outcome.test_correct = accuracy->correct;
  session.console.print(accuracy_text(outcome));
  return Ok{};
}

/// Runs the plan. Where this machine lacks a kernel that the trace names (cuDNN's algorithms are
/// none of the host's) and nobody asked for native ones, surrogates take over.
Result<Run> run_for_real(const Options& options, const Trace& trace, const Plan& plan,
                         ReplayOptions& how, Console& console) {
  const auto once = [&] {
    const ReplayWatch watch(console, *how.progress, "", options.steps, !options.no_reference);
    return run_plan(trace, plan, how);
  };
  Result<Run> run = once();
  if (!run && run.error().code == ErrorCode::bad_input && how.kernels == KernelSet::native) {
    if (!options.kernels.empty() || !options.data.empty()) {
      run.error().message += " (--kernels verify replays any trace)";
      return run;
    }
    console.note(
        fmt::format("{}: taking --kernels verify, which compute nothing, but read and "
                    "write every byte (quick with --scale-bytes 1/1024)",
                    run.error().message));
    how.kernels = KernelSet::verify;
    run = once();
  }
  if (!run && run.error().code == ErrorCode::does_not_fit && !how.on_cuda &&
      options.kernels != "native" && options.data.empty() && options.target.scale == "1")
    run.error().message += " (--scale-bytes 1/1024 divides all sizes)";
  return run;
}

Status replay(const Options& options, const Session& session) {
  const auto loaded = load(options.target, session);
  if (!loaded) return loaded.error();
  const Trace& trace = loaded->trace;
  auto how = replay_options(options, trace, session);
  if (!how) return how.error();
  Lessons lessons;
  if (Status status = prepare_lessons(options, trace, *how, lessons); !status) return status;
  ReplayProgress progress;
  how->progress = &progress;
  auto plan = plan_from(options.source, options.target, *loaded, session);
  if (!plan) return plan.error();
  auto outcome = evaluate(trace, *plan, loaded->profile, {.fed = fed_bytes(trace, lessons)});
  if (!outcome) return outcome.error();

  // The arena is the budget, except that memory nobody needs is not taken from this machine.
  plan->budget.device = std::min(plan->budget.device, outcome->placed_peak_bytes);
  const auto run = run_for_real(options, trace, *plan, *how, session.console);
  if (!run) return run.error();
  outcome->measured_step_ns = median_step(run->measured.steps, how->warmup_steps);
  outcome->measured_peak_bytes = run->measured.peak;
  outcome->outside_bytes = run->measured.outside;
  outcome->guards = how->guards;
  outcome->time_refused = time_refused(options, *loaded, *how);
  outcome->losses = run->losses;
  session.console.print(format_replay(*outcome) + losses_text(run->losses));
  if (Status status = test(trace, *run, lessons, session, *outcome); !status) return status;

  Status equal = Ok{};
  if (!options.no_reference)
    equal = compare_with_reference(trace, *plan, *run, *how, *outcome, session.console);
  if (!equal && equal.error().code != ErrorCode::not_equal) return equal;
  if (Status status = write_json(options.json, format_json({&*outcome, 1}, session.options));
      !status)
    return status;
  return equal ? compare_peaks(*outcome, *how) : equal;
}

}  // namespace

void add_replay_command(cli::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(
      app, session, "replay", "run a plan for real and compare its results with the reference",
      "traces/resnet50-b64.jsonl.gz --policy liveness_offload --budget 60% "
      "--scale-bytes 1/1024",
      [options, &session] {
        return with_refusal(replay(*options, session), options->json, session);
      });
  add_trace_option(*command, options->target);
  add_plan_options(*command, options->source);
  add_budget_option(*command, options->target);
  add_setting_options(*command, options->target);
  command->add_option("--on", options->on, "host or cuda")->capture_default_str();
  command->add_option(
      "--kernels", options->kernels,
      "native, verify (surrogates that read and write every byte) or timed (surrogates that take "
      "the recorded time); default: native where the trace and this machine can, else verify");
  command->add_option("--steps", options->steps, "training steps")
      ->within(1, 1000000)
      ->capture_default_str();
  command->add_option("--data", options->data,
                      "data set to train on (digits, or a file): each training step takes the next "
                      "mini-batch, in a new order each epoch; default: one fixed batch of noise");
  add_seed_option(*command, options->seed, "of initial values, random ops and mini-batches");
  command->add_flag("--stress", options->stress,
                    "random delays on all streams, freed ranges poisoned");
  command->add_flag("--guards", options->guards, "guard bytes around every range");
  command->add_flag("--no-reference", options->no_reference, "do not run the reference");
  add_json_option(*command, options->json);
}

}  // namespace superneurons
