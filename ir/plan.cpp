#include "ir/plan.h"

#include "ir/dataflow.h"
#include "ir/trace_io.h"

namespace superneurons {

Plan keep_all_plan(const Trace& trace) {
  const Dataflow flow = analyze(trace);
  Plan plan;
  plan.trace_hash = trace_hash(trace);
  plan.policy = "keep_all";
  std::vector<bool> resident(trace.tensors.size(), false);
  std::vector<bool> stays(trace.tensors.size(), false);
  // home_of[end]: the start whose home `end` takes over, which must be empty by then.
  std::vector<std::optional<TensorId>> home_of(trace.tensors.size());
  for (const Carry& carry : trace.carry) {
    const bool moves = carry.end != carry.start;
    const bool wanted = !moves || flow[carry.start].needed_at_start;
    plan.begin.push_back({wanted ? Place::device : Place::nowhere});
    if (!wanted) continue;
    resident[carry.start.index] = true;
    stays[carry.end.index] = true;
    if (moves) home_of[carry.end.index] = carry.start;
  }
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    for (const Access& write : trace.ops[i].writes) {
      const std::uint32_t tensor = write.tensor.index;
      if (resident[tensor]) continue;
      resident[tensor] = true;
      if (!home_of[tensor] || !resident[home_of[tensor]->index]) continue;
      plan.steps.push_back(tensor_step(StepKind::free, *home_of[tensor]));
      resident[home_of[tensor]->index] = false;
    }
    plan.steps.push_back(run_step({i}, trace.ops[i].recorded));
  }
  for (std::uint32_t i = 0; i < trace.tensors.size(); ++i)
    if (resident[i] && !stays[i]) plan.steps.push_back(tensor_step(StepKind::free, {i}));
  return plan;
}

}  // namespace superneurons
