#include "cli/network_options.h"

namespace superneurons {

CLI::Option* add_network_option(CLI::App& command, NetworkOptions& options) {
  return command.add_option("network", options.name, "see `superneurons networks`");
}

void add_lowering_options(CLI::App& command, NetworkOptions& options) {
  command.add_option("--batch", options.batch, "images per training step (default: the network's)")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{INT32_MAX}));
  command.add_flag("--tf32", options.tf32, "let convolutions and matrix products use TF32");
  std::vector<std::string> names;
  for (const LoweringEntry& entry : lowerings()) names.emplace_back(entry.name);
  auto* lowering =
      command
          .add_option("--lowering", options.lowering,
                      "how layers become ops: native, paper (as the SuperNeurons runtime did), or "
                      "a model of another framework")
          ->check(CLI::IsMember(names))
          ->capture_default_str();
  command.add_flag("--paper", options.paper, "short for --lowering paper")->excludes(lowering);
  command
      .add_option("--order", options.order,
                  "of layers: declared, route (the paper's, depth-first), or what is usual for the "
                  "lowering")
      ->check(
          CLI::IsMember(std::vector<std::string>(kLayerOrderNames.begin(), kLayerOrderNames.end())))
      ->capture_default_str();
  command
      .add_option("--update", options.updates,
                  "when parameters are updated: end (after backward), or arrive (as soon as the "
                  "gradient is there, which then goes)")
      ->check(CLI::IsMember({"end", "arrive"}))
      ->capture_default_str();
  const auto add_number = [&](const char* name, double& number, double most, const char* summary) {
    command.add_option(name, number, summary)->check(CLI::Range(0.0, most))->capture_default_str();
  };
  add_number("--rate", options.rate, 1000, "learning rate of SGD");
  add_number("--momentum", options.momentum, 1, "of SGD");
  add_number("--weight-decay", options.weight_decay, 1000, "of SGD");
}

std::int64_t batch_of(const NetworkOptions& options) {
  if (options.batch != 0) return options.batch;
  for (const NetworkEntry& entry : networks())
    if (entry.name == options.name) return entry.default_batch;
  return 16;
}

LoweringOptions lowering_of(const NetworkOptions& options) {
  const Result<Lowering> lowering = find_lowering(options.paper ? "paper" : options.lowering);
  LayerOrder order = LayerOrder::usual;  // names were checked
  if (options.order == "declared") order = LayerOrder::declared;
  if (options.order == "route") order = LayerOrder::route;
  return {.batch = batch_of(options),
          .lowering = lowering ? *lowering : Lowering::native,
          .updates = options.updates == "arrive" ? Updates::arrive : Updates::end,
          .order = order,
          .tf32 = options.tf32,
          .rate = options.rate,
          .momentum = options.momentum,
          .weight_decay = options.weight_decay};
}

Result<Trace> lower_network(const NetworkOptions& options) {
  const Result<Network> network = find_network(options.name);
  if (!network) return network.error();
  return lower(*network, lowering_of(options));
}

}  // namespace superneurons
