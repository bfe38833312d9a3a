// build NETWORK: a trace from the cost model, no run.
#include <fmt/format.h>

#include <memory>

#include "cli/network_options.h"
#include "cli/session.h"
#include "ir/trace_io.h"
#include "networks/costs.h"

namespace superneurons {
namespace {

struct BuildOptions {
  NetworkOptions network;
  std::string output;
  std::string device;
  std::vector<std::string> costs_from;
};

Result<std::vector<Trace>> read_traces(const std::vector<std::string>& files) {
  std::vector<Trace> traces;
  for (const std::string& file : files) {
    Result<Trace> trace = read_trace(file);
    if (!trace) return trace.error();
    traces.push_back(std::move(*trace));
  }
  return traces;
}

/// The profile that was asked for, else that of the device of the recorded costs, else h200.
Result<DeviceProfile> profile_for(const BuildOptions& options, const std::vector<Trace>& recorded) {
  if (recorded.empty()) return find_profile(options.device.empty() ? "h200" : options.device);
  const std::string& device = recorded.front().device;
  Result<DeviceProfile> profile =
      options.device.empty() ? profile_measured_on(device) : find_profile(options.device);
  if (profile && !options.device.empty() && profile->device != device)
    return Error{.code = ErrorCode::bad_usage,
                 .message = fmt::format("--costs-from has times of {}, and profile {} is of {} "
                                        "(build without --device, then simulate --device {})",
                                        device, profile->name, profile->device, options.device)};
  return profile;
}

Status build(const BuildOptions& options, const Session& session) {
  const auto recorded = read_traces(options.costs_from);
  if (!recorded) return recorded.error();
  const auto profile = profile_for(options, *recorded);
  if (!profile) return profile.error();
  auto trace = lower_network(options.network);
  if (!trace) return trace.error();
  estimate_durations(*trace, *profile);
  const auto copied = copy_costs(*trace, *recorded);
  if (!copied) return copied.error();
  if (copied->matched > 0 && copied->matched < copied->of && profile->device != trace->device)
    return Error{.code = ErrorCode::bad_usage,
                 .message = fmt::format("{} of {} ops are not in the recorded traces, and there is "
                                        "no profile of {} to estimate them (--device FILE)",
                                        copied->of - copied->matched, copied->of, trace->device)};
  trace->origin = fmt::format("{} ({}, {})", session.made_by, trace->origin, session.today);
  if (Status status = write_trace(*trace, options.output); !status) return status;
  std::string times = fmt::format("times estimated for {}", profile->device);
  if (copied->matched > 0)
    times = fmt::format("times of {} measured on {}{}", copied->matched, trace->device,
                        copied->matched < copied->of ? ", of the others estimated" : "");
  session.console.print(fmt::format("{}: {} ops, {} tensors, {}\n", options.output,
                                    trace->ops.size(), trace->tensors.size(), times));
  return Ok{};
}

}  // namespace

void add_build_command(CLI::App& app, Session& session) {
  auto options = std::make_shared<BuildOptions>();
  auto* command =
      add_command(app, session, "build", "make a trace from the cost model, without a run",
                  "resnet50 --batch 64 -o resnet50.jsonl.gz",
                  [options, &session] { return build(*options, session); });
  add_network_option(*command, options->network)->required();
  add_output_option(*command, "-o,--output", options->output, "trace to write")->required();
  add_lowering_options(*command, options->network);
  command->add_option("--device", options->device,
                      "device profile (default: that of --costs-from, else h200)");
  command->add_option("--costs-from", options->costs_from,
                      "recorded traces: ops that occur in one cost what was measured there; may "
                      "be repeated");
}

}  // namespace superneurons
