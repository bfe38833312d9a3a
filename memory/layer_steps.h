// Memory over layer steps, as papers print it: bytes of some roles at each layer's own turn,
// forward and backward, and the peak of their sum.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "memory/placement.h"

namespace superneurons {

/// An accounting scope: roles whose bytes are summed.
using Scope = std::span<const Role>;

/// What SuperNeurons (PPoPP 2018) counts in its table 1 and figure 10: outputs of layers and their
/// gradients; neither parameters nor the batch, masks or workspaces.
inline constexpr std::array<Role, 2> kPaperScope = {Role::activation, Role::activation_gradient};

Bytes in_scope(const Residency& row, Scope scope);  // of the scope's roles, summed

/// Most bytes of the scope at any plan step, reruns included.
Bytes scope_peak(const Trace& trace, const Plan& plan, Scope scope = kPaperScope);

/// A layer step: the recorded runs (not the reruns) of one layer in one phase that follow one
/// another; an op of no known layer is one of its own.
struct LayerStep {
  std::string layer;
  Phase phase = Phase::other;
  std::uint32_t plan_step = 0;  // the run that it was sampled at, its highest
  Bytes bytes{};                // of the scope, during that run: live before and what it makes
  std::int64_t tensors = 0;     // how many these are
  Bytes peak{};                 // also over what precedes it: rebuilding, copies
};

/// The layer steps of a plan in its order, those of the update too. The plan must pass check().
std::vector<LayerStep> layer_steps(const Trace& trace, const Plan& plan, Scope scope = kPaperScope);

}  // namespace superneurons
