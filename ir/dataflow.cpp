#include "ir/dataflow.h"

#include <algorithm>

namespace superneurons {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool has(const std::vector<Value>& values, TensorId id) {
  return std::any_of(values.begin(), values.end(),
                     [&](const Value& value) { return value.tensor == id; });
}

/// Whether the program carries the tensor's value as state, even if no op of the step reads it.
bool is_state(Role role) {
  return role == Role::parameter || role == Role::buffer || role == Role::optimizer_state;
}

void add_user(TensorFlow& tensor, OpId op) {
  if (tensor.users.empty() || tensor.users.back() != op) tensor.users.push_back(op);
}

/// Adds the versions of one op and moves the tensors it writes to their next version.
OpFlow flow_of(const Trace& trace, OpId id, std::vector<TensorFlow>& tensors) {
  const Op& op = trace[id];
  OpFlow flow;
  const auto need = [&](TensorId tensor) {
    TensorFlow& state = tensors[tensor.index];
    if (has(flow.needs, tensor)) return;
    flow.needs.push_back({tensor, state.last});
    if (state.last == 0) state.needed_at_start = true;
  };
  for (const Access& read : op.reads) need(read.tensor);
  for (const Access& write : op.writes) {
    const TensorFlow& state = tensors[write.tensor.index];
    if (!covers(trace, write) && (state.last > 0 || state.alive_at_start)) need(write.tensor);
  }
  for (const Access& access : op.reads) add_user(tensors[access.tensor.index], id);
  for (const Access& write : op.writes) {
    TensorFlow& state = tensors[write.tensor.index];
    add_user(state, id);
    if (has(flow.makes, write.tensor)) continue;
    flow.makes.push_back({write.tensor, ++state.last});
    state.makers.push_back(id);
  }
  for (const Value& value : flow.needs)
    if (!contains(op.once, value.tensor)) flow.rerun_needs.push_back(value);
  for (const Value& value : flow.makes)
    if (!contains(op.once, value.tensor)) flow.rerun_makes.push_back(value);
  return flow;
}

}  // namespace

Dataflow analyze(const Trace& trace) {
  Dataflow result;
  result.tensors.resize(trace.tensors.size());
  for (const Carry& carry : trace.carry) result.tensors[carry.start.index].alive_at_start = true;
  result.ops.reserve(trace.ops.size());
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i)
    result.ops.push_back(flow_of(trace, {i}, result.tensors));
  for (const Carry& carry : trace.carry) {
    TensorFlow& start = result.tensors[carry.start.index];
    start.needed_at_start |= is_state(trace[carry.start].role);
    result.tensors[carry.end.index].needed_at_end = start.needed_at_start;
  }
  return result;
}

}  // namespace superneurons
