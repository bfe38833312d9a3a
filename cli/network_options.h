// Options that say which built-in network is lowered, and how.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"
#include "ir/device_profile.h"
#include "networks/costs.h"
#include "networks/network.h"

namespace superneurons {

struct NetworkOptions {
  std::string name;
  std::int64_t batch = 0;  // 0: the network's default
  bool tf32 = false;
  bool paper = false;
  std::string lowering = "native";
  std::string order = "usual";
  std::string updates = "usual";
  double rate = LoweringOptions{}.rate;
  double momentum = LoweringOptions{}.momentum;
  double weight_decay = LoweringOptions{}.weight_decay;
};

/// The network's name, positional.
cli::Option* add_network_option(cli::Command& command, NetworkOptions& options);
/// --batch, --tf32, --lowering, --paper, --order, --update, --rate, --momentum, --weight-decay.
void add_lowering_options(cli::Command& command, NetworkOptions& options);

/// Images per training step: as asked, or the registry's default, or 16.
std::int64_t batch_of(const NetworkOptions& options);
LoweringOptions lowering_of(const NetworkOptions& options);
/// The uncosted trace. Errors as find_network() and lower(); bad_usage for updates that the
/// lowering does not make.
Result<Trace> lower_network(const NetworkOptions& options);

/// Where the times of ops that nobody runs come from.
struct CostOptions {
  std::string device;  // profile; "": that of costs_from, else h200
  std::vector<std::string> costs_from;
};
/// --device and --costs-from.
void add_cost_options(cli::Command& command, CostOptions& options);

struct Costs {
  DeviceProfile profile;
  std::vector<Trace> recorded;
};
/// Reads them. bad_usage where --device is not what was recorded on.
Result<Costs> load_costs(const CostOptions& options);

struct CostedTrace {
  Trace trace;
  CopiedCosts copied;
};
/// lower_network() with the recorded times, and the others estimated. bad_usage where some are not
/// recorded and there is no profile of that device, or one without rates.
Result<CostedTrace> costed_network(const NetworkOptions& options, const Costs& costs);
/// "times estimated for ...": which of the trace's times are of what.
std::string times_text(const CostedTrace& costed, const Costs& costs);

}  // namespace superneurons
