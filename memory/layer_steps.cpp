#include "memory/layer_steps.h"

#include <algorithm>

#include "memory/schedule.h"

namespace superneurons {
namespace {

/// Counts the tensors of a scope on the device, step by step, as the residency counts their bytes:
/// homes throughout.
class TensorCounter {
 public:
  TensorCounter(const Trace& trace, const Schedule& schedule, Scope scope)
      : trace_(trace), schedule_(schedule), scope_(scope), counted_(trace.tensors.size(), false) {
    for (std::uint32_t i = 0; i < schedule.homes; ++i)
      if (is_tensor(schedule.requests[i])) ++count_;
  }

  void step(const PlanStep& step, std::uint32_t number) {
    for (std::uint32_t i = schedule_.first[number]; i < schedule_.first[number + 1]; ++i) {
      const Request& request = schedule_.requests[i];
      if (!is_tensor(request) || request.home != kNoHome) continue;
      counted_[request.allocation.tensor.index] = true;
      ++count_;
    }
    if (step.kind != StepKind::free || !counted_[step.subject]) return;
    counted_[step.subject] = false;
    --count_;
  }

  std::int64_t count() const { return count_; }

 private:
  bool is_tensor(const Request& request) const {
    const Allocation& taken = request.allocation;
    return taken.space == Space::device && taken.use == Use::tensor &&
           std::find(scope_.begin(), scope_.end(), trace_[taken.tensor].role) != scope_.end();
  }

  const Trace& trace_;
  const Schedule& schedule_;
  Scope scope_;
  std::vector<bool> counted_;  // by tensor: in a range that a free gives back
  std::int64_t count_ = 0;
};

bool continues(const LayerStep& step, const Op& op) {
  return !op.layer.empty() && op.layer == step.layer && op.phase == step.phase;
}

}  // namespace

Bytes in_scope(const Residency& row, Scope scope) {
  Bytes sum{};
  for (const Role role : scope) sum += row.by_role[static_cast<std::size_t>(role)];
  return sum;
}

Bytes scope_peak(const Trace& trace, const Plan& plan, Scope scope) {
  Bytes peak{};
  for (const Residency& row : residency(trace, plan)) peak = std::max(peak, in_scope(row, scope));
  return peak;
}

std::vector<LayerStep> layer_steps(const Trace& trace, const Plan& plan, Scope scope) {
  const Schedule scheduled = schedule(trace, plan, {.residency = true});
  TensorCounter counter(trace, scheduled, scope);
  std::vector<LayerStep> steps;
  std::vector<bool> ran(trace.ops.size(), false);
  Bytes before{};  // most bytes since the last recorded run
  for (std::uint32_t i = 0; i < plan.steps.size(); ++i) {
    const PlanStep& step = plan.steps[i];
    const Bytes bytes = in_scope(scheduled.residency[i], scope);
    counter.step(step, i);
    before = std::max(before, bytes);
    if (step.kind != StepKind::run || ran[step.subject]) continue;
    ran[step.subject] = true;
    const Op& op = trace[step.op()];
    if (steps.empty() || !continues(steps.back(), op))
      steps.push_back({op.layer, op.phase, i, bytes, counter.count(), 0_B});
    LayerStep& now = steps.back();
    if (bytes > now.bytes) {
      now.plan_step = i;
      now.bytes = bytes;
      now.tensors = counter.count();
    }
    now.peak = std::max(now.peak, before);
    before = 0_B;
  }
  return steps;
}

}  // namespace superneurons
