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
  CostOptions costs;
};

Status build(const BuildOptions& options, const Session& session) {
  const EndsAtOnce at_once(session);
  const auto costs = load_costs(options.costs);
  if (!costs) return costs.error();
  const auto costed = costed_network(options.network, *costs);
  if (!costed) return costed.error();
  // Its origin is the cost model alone: what is the same trace tomorrow has the same hash.
  const Trace& trace = costed->trace;
  if (Status status = write_trace(trace, options.output); !status) return status;
  session.console.print(fmt::format("{}: {} ops, {} tensors, {}\n", options.output,
                                    trace.ops.size(), trace.tensors.size(),
                                    times_text(*costed, *costs)));
  return Ok{};
}

}  // namespace

void add_build_command(cli::App& app, Session& session) {
  auto options = std::make_shared<BuildOptions>();
  auto* command =
      add_command(app, session, "build", "make a trace from the cost model, without a run",
                  "resnet50 --batch 64 -o resnet50.jsonl.gz",
                  [options, &session] { return build(*options, session); });
  add_network_option(*command, options->network)->required();
  add_output_option(*command, "-o,--output", options->output, "trace to write")->required();
  add_lowering_options(*command, options->network);
  add_cost_options(*command, options->costs);
}

}  // namespace superneurons
