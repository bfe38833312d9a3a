// trace NETWORK: a real run → trace (CUDA with CUPTI where there is a GPU; else the host).
// trace -- python SCRIPT: PyTorch training steps, op by op (trace_python.h).
// trace -- CMD: any CUDA program → trace of what its device did (trace_program.h).
#include <fmt/format.h>

#include <memory>

#include "cli/activity_traces.h"
#include "cli/network_options.h"
#include "cli/record_fallbacks.h"
#include "cli/session.h"
#include "cli/trace_program.h"
#include "cli/trace_python.h"
#include "ir/files.h"
#include "ir/trace_io.h"
#include "tracer/calibrate.h"
#include "tracer/quality.h"
#include "tracer/record.h"

namespace superneurons {
namespace {

struct TraceOptions {
  NetworkOptions network;
  std::string output;
  std::string on;
  int steps = 0;    // 0: 7 of a network, 3 of a PyTorch program
  int warmup = -1;  // -1: 3
  bool no_choices = false;
  std::uint64_t seed = 1;
  std::string budget;
  PythonOptions python;
  ActivityOptions activity;
  std::string log_file;
};

/// 0 where nothing is said.
Result<Bytes> memory_of(const std::string& budget) {
  if (budget.empty()) return Bytes{};
  const auto bytes = parse_bytes(budget);
  if (bytes && *bytes > 0_B) return bytes;
  return Error{.code = ErrorCode::bad_usage,
               .message = fmt::format("--budget {}: a network that is yet to be recorded takes a "
                                      "size above 0 (12GiB)",
                                      budget)};
}

/// The profile of the machine, or, to plan with, another one.
Result<DeviceProfile> profile_to_plan_with(const std::string& device) {
  Result<DeviceProfile> profile = profile_measured_on(device);
  return profile ? profile : find_profile("h200");
}

/// A command after --: a PyTorch program by its ops, any other by its kernels.
Status trace_command(const TraceOptions& options, Session& session) {
  if (const int code = cannot_start(session.program.front(), session.console)) {
    session.exit_code = code;
    return Ok{};
  }
  if (options.python.program || !runs_python(session.program))
    return trace_program(session.program, options.output, options.activity, options.log_file,
                         session);
  PythonOptions python = options.python;
  python.steps = options.steps;
  python.warmup = options.warmup;
  return trace_python(session.program, options.output, python, session);
}

Status trace(const TraceOptions& options, Session& session) {
  if (options.network.name.empty() == session.program.empty())
    return Error{ErrorCode::bad_usage,
                 "trace takes a network, or a command after -- "
                 "(superneurons trace --help tells more)"};
  if (!session.program.empty()) return trace_command(options, session);
  auto lowered = lower_network(options.network);
  if (!lowered) return lowered.error();
  const auto on_cuda = wants_cuda(options.on);
  if (!on_cuda) return on_cuda.error();
  const auto memory = memory_of(options.budget);
  if (!memory) return memory.error();
  const auto profile = profile_to_plan_with(machine_device(*on_cuda));
  if (!profile) return profile.error();
  const std::string where = machine_versions(*on_cuda);
  auto recorded =
      record(std::move(*lowered),
             {.on_cuda = *on_cuda,
              .warmup_steps = options.warmup < 0 ? 3 : options.warmup,
              .traced_steps = options.steps == 0 ? 7 : options.steps,
              .untraced_steps = *on_cuda ? 20 : 5,
              .choices = !options.no_choices,
              .device_memory = *memory,
              .fallbacks = record_fallbacks(*profile, &session.stop),
              .seed = options.seed,
              .origin = fmt::format("{} ({}, {})", session.made_by, where, session.today),
              .progress = [&session](const std::string& line) { session.console.progress(line); },
              .stop = &session.stop});
  if (!recorded) return recorded.error();
  recorded->device = machine_device(*on_cuda);
  if (Status status = write_trace(*recorded, options.output); !status) return status;
  session.console.print(fmt::format(
      "{}: {} ops, training step {} untraced, {} traced ({:.3f}x), {} dropped records\n",
      options.output, recorded->ops.size(), format_time(recorded->step_ns_untraced),
      format_time(recorded->step_ns_traced),
      static_cast<double>(recorded->step_ns_traced.count) /
          static_cast<double>(std::max<std::int64_t>(recorded->step_ns_untraced.count, 1)),
      recorded->dropped_records));
  for (const std::string& doubt : quality_of(*recorded).doubts) session.console.note(doubt);
  return Ok{};
}

void add_python_options(cli::Command& command, PythonOptions& python) {
  command
      .add_option("--untouched", python.untouched,
                  "of PyTorch: training steps after the traced ones that give the true time "
                  "(default: 5)")
      ->within(0, 1000);
  command.add_flag("--stop-after", python.stop_after,
                   "of PyTorch: end the program when all is captured");
  command.add_flag("--strip-recompute", python.strip_recompute,
                   "of PyTorch: leave out what activation checkpointing computes again");
  command.add_flag("--offload-capture", python.offload_capture,
                   "of PyTorch: keep tensors saved for backward on the host, so that a model runs "
                   "that does not fit");
  command.add_flag("--compiled", python.compiled,
                   "of PyTorch: functions that torch.compile made stay compiled, and are known by "
                   "their kernels and the allocator's memory");
  command.add_option("--keep-raw", python.keep_raw,
                     "of PyTorch: a folder for what the trace is made from (convert)");
  command.add_flag("--program", python.program,
                   "trace a command by its kernels, as one that is no PyTorch program");
}

void add_program_options(cli::Command& command, TraceOptions& options) {
  add_window_options(command, options.activity);
  add_output_option(command, "--keep-log", options.log_file,
                    "of a CUDA program: keep what the tracer wrote (convert)");
}

}  // namespace

void add_trace_command(cli::App& app, Session& session) {
  auto options = std::make_shared<TraceOptions>();
  auto* command = add_command(
      app, session, "trace",
      "run a network for real and record its trace; or, after --, a PyTorch program, of which some "
      "training steps are recorded, or any CUDA program, of which the kernels are",
      "small_cnn --on host -o small_cnn.jsonl.gz\n"
      "         superneurons trace -o program.jsonl.gz -- python3 train.py",
      [options, &session] { return trace(*options, session); });
  add_network_option(*command, options->network);
  add_output_option(*command, "-o,--output", options->output, "trace to write")->required();
  add_lowering_options(*command, options->network);
  command->add_option("--on", options->on, "host or cuda (default: cuda where there is a GPU)");
  command
      ->add_option("--steps", options->steps,
                   "traced training steps, of which the median counts (default: 7; of PyTorch: 3)")
      ->within(1, 1000);
  command->add_option("--warmup", options->warmup, "training steps before that (default: 3)")
      ->within(0, 1000000);
  command->add_flag("--no-choices", options->no_choices,
                    "do not measure every convolution algorithm");
  command->add_option("--budget", options->budget,
                      "device memory to record in: where everything kept does not fit, a policy's "
                      "plan runs (default: what is free)");
  add_seed_option(*command, options->seed, "of initial values");
  add_python_options(*command, options->python);
  add_program_options(*command, *options);
}

}  // namespace superneurons
