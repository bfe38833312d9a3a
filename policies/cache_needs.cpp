#include "policies/cache_needs.h"

#include <algorithm>

#include "memory/allocator.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::vector<Freedom> freedoms(const Trace& trace, const Plan& plan) {
  std::vector<Freedom> result(trace.tensors.size(), Freedom::evictable);
  for (std::size_t i = 0; i < trace.carry.size(); ++i) {
    const auto [end, start] = trace.carry[i];
    const Place place = plan.begin[i].place;
    // Two tensors that share a home on the host come and go there in the order of the plan.
    if (place == Place::nowhere || (place == Place::host && start == end)) continue;
    const Freedom freedom = place == Place::device ? Freedom::at_home : Freedom::stays;
    for (const TensorId tensor : {end, start})
      result[tensor.index] = std::max(result[tensor.index], freedom);
  }
  return result;
}

Grants grants_of(const PolicyContext& context, const PlanStep& step, bool rerun) {
  const Op& op = context.trace[step.op()];
  const Choice& choice = op.choices[step.choice];
  Grants grants;
  if (choice.workspace > 0_B) grants.transient.push_back(choice.workspace);
  std::vector<TensorId> seen;
  for (const Access& write : op.writes) {
    const TensorId tensor = write.tensor;
    if (contains(choice.omits, tensor) || (rerun && contains(op.once, tensor))) continue;
    if (contains(seen, tensor)) continue;
    seen.push_back(tensor);
    if (contains(step.discard, tensor)) grants.transient.push_back(context.trace[tensor].bytes);
    else grants.outputs.push_back(tensor);
  }
  return grants;
}

Bytes cache_floor(const PolicyContext& context, const Plan& plan) {
  const Trace& trace = context.trace;
  const auto rounded = [](Bytes bytes) { return round_up(bytes, kAllocationUnit); };
  const std::vector<Freedom> freedom = freedoms(trace, plan);
  const std::vector<bool> rerun = reruns(trace, plan);
  Bytes homes{}, largest{};
  for (std::size_t i = 0; i < plan.begin.size(); ++i)
    if (plan.begin[i].place == Place::device) homes += rounded(trace[trace.carry[i].start].bytes);
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (plan.steps[i].kind != StepKind::run) continue;
    Grants grants = grants_of(context, plan.steps[i], rerun[i]);
    for (const Value& need : needs_of(context, plan.steps[i], rerun[i]))
      if (!contains(grants.outputs, need.tensor)) grants.outputs.push_back(need.tensor);
    Bytes set{};
    for (const TensorId tensor : grants.outputs)
      if (freedom[tensor.index] != Freedom::at_home) set += rounded(trace[tensor].bytes);
    for (const Bytes transient : grants.transient) set += rounded(transient);
    largest = std::max(largest, set);
  }
  return homes + largest;
}

}  // namespace superneurons
