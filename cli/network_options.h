// Options that say which built-in network is lowered, and how.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "networks/network.h"

namespace superneurons {

struct NetworkOptions {
  std::string name;
  std::int64_t batch = 0;  // 0: the network's default
  bool tf32 = false;
  bool paper = false;
  std::string lowering = "native";
  std::string order = "usual";
  std::string updates = "end";
  double rate = LoweringOptions{}.rate;
  double momentum = LoweringOptions{}.momentum;
  double weight_decay = LoweringOptions{}.weight_decay;
};

/// The network's name, positional.
CLI::Option* add_network_option(CLI::App& command, NetworkOptions& options);
/// --batch, --tf32, --lowering, --paper, --order, --update, --rate, --momentum, --weight-decay.
void add_lowering_options(CLI::App& command, NetworkOptions& options);

/// Images per training step: as asked, or the registry's default, or 16.
std::int64_t batch_of(const NetworkOptions& options);
LoweringOptions lowering_of(const NetworkOptions& options);
/// The uncosted trace. Errors as find_network() and lower().
Result<Trace> lower_network(const NetworkOptions& options);

}  // namespace superneurons
