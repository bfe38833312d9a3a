#include "cli/network_options.h"

#include <fmt/format.h>

#include "cli/session.h"
#include "ir/trace_io.h"
#include "networks/lowering_style.h"
#include "networks/roofline.h"

namespace superneurons {

cli::Option* add_network_option(cli::Command& command, NetworkOptions& options) {
  return command.add_option("network", options.name, "see `superneurons networks`");
}

void add_lowering_options(cli::Command& command, NetworkOptions& options) {
  command.add_option("--batch", options.batch, "images per training step (default: the network's)")
      ->within(1, INT32_MAX);
  command.add_flag("--tf32", options.tf32, "let convolutions and matrix products use TF32");
  std::vector<std::string> names;
  for (const LoweringEntry& entry : lowerings()) names.emplace_back(entry.name);
  auto* lowering =
      command
          .add_option("--lowering", options.lowering,
                      "how layers become ops: native, paper (as the SuperNeurons runtime did), or "
                      "a model of another framework")
          ->one_of(names)
          ->capture_default_str();
  command.add_flag("--paper", options.paper, "short for --lowering paper")->excludes(lowering);
  command
      .add_option(
          "--order", options.order,
          "of layers: declared, route (the paper's, depth-first), release (the same with the "
          "first branch last, as its released code), or what is usual for the lowering")
      ->one_of(std::vector<std::string>(kLayerOrderNames.begin(), kLayerOrderNames.end()))
      ->capture_default_str();
  command
      .add_option("--update", options.updates,
                  "when parameters are updated: end (after backward), arrive (as soon as the "
                  "gradient is there, which then goes), or what is usual for the lowering")
      ->one_of({"usual", "end", "arrive"})
      ->capture_default_str();
  const auto add_number = [&](const char* name, double& number, double most, const char* summary) {
    command.add_option(name, number, summary)->within_reals(0, most)->capture_default_str();
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
  if (options.order == "release") order = LayerOrder::release;
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
  if (options.updates == "end" && style_of(lowering_of(options).lowering).updates_at_once)
    return Error{ErrorCode::bad_usage,
                 fmt::format("--update end does not go with --lowering {}, which updates as "
                             "gradients arrive",
                             options.lowering)};
  return lower(*network, lowering_of(options));
}

namespace {

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
Result<DeviceProfile> profile_for(const CostOptions& options, const std::vector<Trace>& recorded) {
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

}  // namespace

void add_cost_options(cli::Command& command, CostOptions& options) {
  command.add_option("--device", options.device,
                     "device profile (default: that of --costs-from, else h200)");
  command.add_option("--costs-from", options.costs_from,
                     "recorded traces: ops that occur in one cost what was measured there; may "
                     "be repeated");
}

Result<Costs> load_costs(const CostOptions& options) {
  auto recorded = read_traces(options.costs_from);
  if (!recorded) return recorded.error();
  auto profile = profile_for(options, *recorded);
  if (!profile) return profile.error();
  return Costs{*std::move(profile), *std::move(recorded)};
}

Result<CostedTrace> costed_network(const NetworkOptions& options, const Costs& costs) {
  auto trace = lower_network(options);
  if (!trace) return trace.error();
  estimate_durations(*trace, costs.profile);
  const auto copied = copy_costs(*trace, costs.recorded);
  if (!copied) return copied.error();
  if (copied->matched < copied->of)
    if (Status rates = check_rates(costs.profile, "estimated"); !rates) return rates.error();
  if (copied->matched > 0 && copied->matched < copied->of && costs.profile.device != trace->device)
    return Error{.code = ErrorCode::bad_usage,
                 .message = fmt::format("{} of {} ops are not in the recorded traces, and there is "
                                        "no profile of {} to estimate them (--device FILE)",
                                        copied->of - copied->matched, copied->of, trace->device)};
  return CostedTrace{*std::move(trace), *copied};
}

std::string times_text(const CostedTrace& costed, const Costs& costs) {
  const CopiedCosts& copied = costed.copied;
  if (copied.matched == 0) return fmt::format("times estimated for {}", costs.profile.device);
  return fmt::format("times of {} measured on {}{}", copied.matched, costed.trace.device,
                     copied.matched < copied.of ? ", of the others estimated" : "");
}

}  // namespace superneurons
