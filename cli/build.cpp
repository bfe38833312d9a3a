// build NETWORK: a trace from the cost model, no run.
#include <fmt/format.h>

#include <memory>

#include "cli/session.h"
#include "ir/trace_io.h"
#include "networks/network.h"

namespace superneurons {
namespace {

struct BuildOptions {
  std::string network;
  std::string output;
  std::string device = "h200";
  std::int64_t batch = 0;
  bool tf32 = false;
  bool paper = false;
};

Status build(const BuildOptions& options, const Session& session) {
  const auto network = find_network(options.network);
  if (!network) return network.error();
  const auto profile = find_profile(options.device);
  if (!profile) return profile.error();
  std::int64_t batch = options.batch;
  for (const NetworkEntry& entry : networks())
    if (batch == 0 && entry.name == options.network) batch = entry.default_batch;
  auto trace = lower(*network, {.batch = batch == 0 ? 16 : batch,
                                .lowering = options.paper ? Lowering::paper : Lowering::native,
                                .tf32 = options.tf32});
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
  command->add_option("network", options->network, "see `superneurons networks`")->required();
  add_output_option(*command, "-o,--output", options->output, "trace to write")->required();
  command
      ->add_option("--batch", options->batch, "images per training step (default: the network's)")
      ->check(CLI::PositiveNumber);
  command->add_option("--device", options->device, "device profile")->capture_default_str();
  command->add_flag("--tf32", options->tf32, "let convolutions and matrix products use TF32");
  command->add_flag("--paper", options->paper, "lower as the SuperNeurons runtime did");
}

}  // namespace superneurons
