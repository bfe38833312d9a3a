// Liveness (SuperNeurons, PPoPP 2018, section 3.2): a tensor leaves the device right after the last
// step that needs it. The paper keeps in/out sets per layer and scans forward, O(N^2); here each
// tensor's touches are walked once, so that it is linear in the plan and works on any plan.
#include <fmt/core.h>

#include <algorithm>

#include "ir/live_sets.h"
#include "policies/options.h"
#include "policies/passes.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

/// Whose tensors are freed early (option `frees`): all, or those of some roles, as runtimes do that
/// hold on to the others.
Result<std::vector<Role>> roles_to_free(const PolicyContext& context) {
  const auto option = context.options.find("frees");
  const std::string frees = option == context.options.end() ? "all" : option->second;
  if (frees == "all") return std::vector<Role>(kAllRoles.begin(), kAllRoles.end());
  if (frees == "gradients") return std::vector<Role>{Role::activation_gradient};
  if (frees == "layers")
    return std::vector<Role>{Role::activation, Role::activation_gradient, Role::saved,
                             Role::temporary};
  return bad_option("liveness", "frees", frees, "all, layers or gradients");
}

bool contains(const std::vector<Role>& roles, Role role) {
  return std::find(roles.begin(), roles.end(), role) != roles.end();
}

/// Carried tensors whose value no op of the next training step needs live nowhere in between.
void forget_unneeded(const PolicyContext& context, const std::vector<Role>& roles, Plan& plan) {
  for (std::size_t i = 0; i < plan.begin.size(); ++i) {
    const Carry& carry = context.trace.carry[i];
    if (contains(roles, context.trace[carry.start].role) && carry.start == carry.end &&
        plan.begin[i].place == Place::device && !context.flow[carry.start].needed_at_start)
      plan.begin[i].place = Place::nowhere;
  }
}

/// `place` follows the last step that touched the tensor.
std::string reason(const PolicyContext& context, const Plan& plan, TensorId tensor,
                   std::uint32_t place) {
  if (!context.explain) return "";
  const std::string& name = context.trace[tensor].name;
  if (place == 0) return fmt::format("no step needs {}", name);
  const std::uint32_t step = place - 1;
  if (plan.steps[step].kind != StepKind::run)
    return fmt::format("no step needs {} after its copy", name);
  return fmt::format("no step needs {} after {}", name, context.trace[plan.steps[step].op()].name);
}

/// Frees one tensor as soon as it may be.
void free_early(const PolicyContext& context, const Plan& plan,
                const std::vector<std::uint32_t>& runs, TensorId tensor,
                std::span<const Touch> touches, bool resident, Edits& edits) {
  std::uint32_t place = 0;  // behind the last step that touched the device copy
  bool copied_out = false;  // that was an offload
  const auto free_here = [&] {
    edits.insert(place, Rank::free, tensor_step(StepKind::free, tensor),
                 reason(context, plan, tensor, place));
  };
  for (const Touch& touch : touches) {
    if (touch.kind == StepKind::free_host) continue;
    if (touch.kind == StepKind::free) {
      // Whoever offloads frees when the copy is done; freeing at once would make others wait.
      if (!copied_out) {
        edits.remove(touch.step);
        free_here();
      }
      resident = false;
      continue;
    }
    if (resident && touch.makes && !touch.needs && !copied_out && runs[touch.step] > runs[place])
      free_here();  // what it holds is overwritten unread, and not at once
    resident = true;
    place = touch.step + 1;
    copied_out = touch.kind == StepKind::offload;
  }
  if (resident && !touches.empty()) free_here();
}

}  // namespace

Result<Plan> liveness(const PolicyContext& context, const Plan& incoming) {
  const Result<std::vector<Role>> roles = roles_to_free(context);
  if (!roles) return roles.error();
  const Trace& trace = context.trace;
  Plan plan = incoming;
  forget_unneeded(context, *roles, plan);
  const std::vector<bool> stays = pinned(trace, plan);
  std::vector<bool> resident(trace.tensors.size(), false);
  for (std::size_t i = 0; i < trace.carry.size(); ++i)
    resident[trace.carry[i].start.index] = plan.begin[i].place == Place::device;
  const Touches touches(context, plan);
  const std::vector<std::uint32_t> runs = runs_before(plan);
  Edits edits(plan.steps.size());
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t)
    if (!stays[t] && contains(*roles, trace.tensors[t].role))
      free_early(context, plan, runs, {t}, touches[{t}], resident[t], edits);
  return std::move(edits).apply(plan);
}

}  // namespace superneurons
