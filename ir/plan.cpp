#include "ir/plan.h"

#include "ir/trace_io.h"

namespace superneurons {

Plan keep_all_plan(const Trace& trace) {
  Plan plan;
  plan.trace_hash = trace_hash(trace);
  plan.policy = "keep_all";
  plan.begin.assign(trace.carry.size(), {Place::device});
  std::vector<bool> stays(trace.tensors.size(), false);
  std::vector<bool> started(trace.tensors.size(), false);
  for (const Carry& carry : trace.carry) {
    stays[carry.end.index] = true;
    started[carry.start.index] = true;
  }
  std::vector<bool> resident = started;
  // The home of a two-tensor carry must be empty before its `end` is first written.
  std::vector<std::uint32_t> home_of(trace.tensors.size(), 0);
  std::vector<bool> moves(trace.tensors.size(), false);
  for (const Carry& carry : trace.carry) {
    if (carry.end == carry.start) continue;
    moves[carry.end.index] = true;
    home_of[carry.end.index] = carry.start.index;
  }
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    for (const Access& write : trace.ops[i].writes) {
      const std::uint32_t tensor = write.tensor.index;
      if (resident[tensor]) continue;
      if (moves[tensor] && resident[home_of[tensor]]) {
        plan.steps.push_back(tensor_step(StepKind::free, {home_of[tensor]}));
        resident[home_of[tensor]] = false;
      }
      resident[tensor] = true;
    }
    plan.steps.push_back(run_step({i}, trace.ops[i].recorded));
  }
  for (std::uint32_t i = 0; i < trace.tensors.size(); ++i)
    if (resident[i] && !stays[i]) plan.steps.push_back(tensor_step(StepKind::free, {i}));
  return plan;
}

}  // namespace superneurons
