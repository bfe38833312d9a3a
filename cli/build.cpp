// build NETWORK: a trace from the cost model, no run.
#include <fmt/format.h>

#include <memory>

#include "cli/network_options.h"
#include "cli/session.h"
#include "ir/trace_io.h"

namespace superneurons {
namespace {

struct BuildOptions {
  NetworkOptions network;
  std::string output;
  std::string device = "h200";
};

Status build(const BuildOptions& options, const Session& session) {
  const auto profile = find_profile(options.device);
  if (!profile) return profile.error();
  auto trace = lower_network(options.network);
  if (!trace) return trace.error();
  estimate_durations(*trace, *profile);
  trace->origin = fmt::format("{} ({}, {})", session.made_by, trace->origin, session.today);
  if (Status status = write_trace(*trace, options.output); !status) return status;
  session.console.print(fmt::format("{}: {} ops, {} tensors, times estimated for {}\n",
                                    options.output, trace->ops.size(), trace->tensors.size(),
                                    profile->device));
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
  command->add_option("--device", options->device, "device profile")->capture_default_str();
}

}  // namespace superneurons
