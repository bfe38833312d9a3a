// Which passes cannot do anything on a trace: said, rather than silently done.
#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "policies/offload_layers.h"
#include "policies/policy.h"
#include "policies/request.h"

namespace superneurons {
namespace {

bool any_op(const Trace& trace, bool (*is)(const Op&)) {
  return std::any_of(trace.ops.begin(), trace.ops.end(), is);
}

std::string no_backward(const Trace& trace) {
  if (any_op(trace, [](const Op& op) { return op.phase == Phase::backward; })) return "";
  return "no op is backward, so no value waits for one";
}

std::string no_choices(const Trace& trace) {
  if (any_op(trace, [](const Op& op) { return op.choices.size() > 1; })) return "";
  return "every op has one choice only: workspaces stay as recorded (traces of our own networks "
         "have several: superneurons trace NETWORK)";
}

std::string offload_idle(const Trace& trace, const Pass& pass) {
  const std::string& layers = pass.options.at("layers");
  const std::vector<bool> moves = offload_layers(trace, layers);
  if (!moves.empty() && std::find(moves.begin(), moves.end(), true) == moves.end())
    return fmt::format(
        "no op is of the kinds that layers={} names (layers=all moves any activation)", layers);
  return no_backward(trace);
}

std::string state_idle(const Trace& trace, const Pass& pass) {
  const std::string& roles = pass.options.at("roles");
  const auto is = [&](Role role) {
    switch (role) {
      case Role::optimizer_state:
        return roles == "optimizer_state" || roles == "both" || roles == "all";
      case Role::parameter:
        return roles == "parameters" || roles == "both" || roles == "all";
      case Role::gradient:
        return roles == "gradients" || roles == "all";
      default:
        return false;
    }
  };
  if (std::any_of(trace.tensors.begin(), trace.tensors.end(),
                  [&](const Tensor& tensor) { return is(tensor.role); }))
    return "";
  return fmt::format("no tensor has a role that roles={} names", roles);
}

std::string recompute_idle(const Trace& trace) {
  if (!any_op(trace, [](const Op& op) { return op.rerunnable && op.phase == Phase::forward; }))
    return "no forward op may run again";
  return no_backward(trace);
}

std::string why_idle(const Trace& trace, const Pass& pass) {
  const std::string_view name = pass.entry->name;
  if (name == "workspace") return no_choices(trace);
  if (name == "offload") return offload_idle(trace, pass);
  if (name == "offload_state") return state_idle(trace, pass);
  if (name == "recompute") return recompute_idle(trace);
  return "";
}

/// Passes other than these free nothing that they do not move or make again.
bool frees(const std::vector<Pass>& passes) {
  return std::any_of(passes.begin(), passes.end(), [](const Pass& pass) {
    return pass.entry->name == "liveness" || pass.entry->name == "recorded" ||
           pass.entry->name == "keep_all";  // asked for
  });
}

}  // namespace

std::vector<std::string> idle_passes(const Trace& trace, std::string_view policy) {
  const Result<std::vector<std::vector<Pass>>> alternatives = parse_policy(policy);
  if (!alternatives) return {};
  std::vector<std::string> remarks;
  std::set<std::string> said;
  const auto say = [&](std::string remark) {
    if (said.insert(remark).second) remarks.push_back(std::move(remark));
  };
  for (const std::vector<Pass>& passes : *alternatives) {
    for (const Pass& pass : passes)
      if (const std::string why = why_idle(trace, pass); !why.empty())
        say(fmt::format("policy {} has nothing to do on this trace: {}", pass.entry->name, why));
    if (!frees(passes))
      say(
          fmt::format("policy {} frees nothing else before the end of the training step "
                      "(liveness+{} does)",
                      policy, policy));
  }
  return remarks;
}

}  // namespace superneurons
