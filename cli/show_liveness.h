// show T --liveness: the live sets of a trace, step by step.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "cli/session.h"

namespace superneurons {

struct LivenessOptions {
  bool wanted = false;
  std::string by = "layer";   // or "op"
  std::string roles = "all";  // or "paper", or names of roles with commas
  std::uint32_t names = 8;    // of a set, the youngest
};
void add_liveness_options(cli::Command& command, LivenessOptions& options);

/// Error bad_usage for what is no role.
Result<std::vector<Role>> liveness_roles(const LivenessOptions& options);

/// Prints the table as it goes, and returns what stands in the JSON, if that is wanted:
///   roles, by                   what counts and what a step is
///   at_start                    names of the tensors live before the first step
///   steps: [{step, first_op, ops, layer, phase, in_bytes, peak_bytes, out_bytes, tensors,
///            born: [names], died: [names]}]
///   peak_step, peak_bytes       step counts from 1
///   peak_law: {layer_bytes, step_bytes, lookahead_layer_steps, prefetched_bytes, waiting_bytes,
///              bound_bytes}     of a paper lowering: PeakLaw
/// The set after a step is the set before it without `died` and with `born`.
nlohmann::ordered_json show_liveness(const Trace& trace, const LivenessOptions& options,
                                     std::span<const Role> roles, bool json,
                                     const Session& session);

}  // namespace superneurons
