#include "policies/peak_law.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/live_sets.h"
#include "policies/op_families.h"

namespace superneurons {
namespace {

/// First and last op that need a value in backward, itself or to make others from it.
struct Span {
  std::uint32_t first = 0xffffffff;
  std::uint32_t last = 0;
};

class Law {
 public:
  Law(const Trace& trace, const Dataflow& flow, std::uint32_t lookahead)
      : trace_(trace),
        flow_(flow),
        prefetched_(trace.ops.size() + 1),
        waiting_(trace.ops.size() + 1),
        spans_(trace.tensors.size()) {
    for (std::uint32_t k = 0; k < trace.ops.size(); ++k)
      if (backward(k)) trace_back(k);
    find_waiting();
    find_prefetched(lookahead);
  }

  PeakLaw run() {
    Bytes prefetched{}, waiting{}, most_apart{-1};
    for (std::uint32_t k = 0; k < trace_.ops.size(); ++k) {
      prefetched += prefetched_[k];
      waiting += waiting_[k];
      if (prefetched + waiting > most_apart) {
        most_apart = prefetched + waiting;
        law_.prefetched = prefetched;
        law_.waiting = waiting;
        law_.apart_op = {k};
      }
      measure(k);
    }
    return law_;
  }

 private:
  using Tensors = std::set<TensorId>;

  bool backward(std::uint32_t op) const { return trace_.ops[op].phase == Phase::backward; }
  bool in_scope(TensorId id) const {
    const Role role = trace_[id].role;
    return role == Role::activation || role == Role::activation_gradient;
  }
  bool managed(TensorId id) const {
    const Role role = trace_[id].role;
    return in_scope(id) || role == Role::saved || role == Role::temporary;
  }
  bool cheap(OpId op) const { return is_cheap(family_of(trace_[op].kind)); }

  Bytes bytes(const Tensors& tensors) const {
    Bytes sum{};
    for (const TensorId id : tensors)
      if (managed(id)) sum += trace_[id].bytes;
    return sum;
  }
  static void add(const std::vector<Access>& accesses, Tensors& tensors) {
    for (const Access& access : accesses) tensors.insert(access.tensor);
  }

  OpId maker(const Value& value) const { return flow_[value.tensor].makers[value.version - 1]; }
  /// Whether backward finds the value gone and runs its maker again.
  bool dropped(const Value& value) const {
    return value.version > 0 && !backward(maker(value).index) && cheap(maker(value));
  }

  /// Finds what op k's absent operands are made from, and who is run again for them.
  void trace_back(std::uint32_t k) {
    std::vector<Value> wanted;
    for (const Value& need : flow_.ops[k].needs)
      if (in_scope(need.tensor)) wanted.push_back(need);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const Value value = wanted[i];
      if (value.version == 0 || backward(maker(value).index)) continue;
      if (!dropped(value)) {
        Span& span = spans_[value.tensor.index];
        span.first = std::min(span.first, k);
        span.last = std::max(span.last, k);
        continue;
      }
      reruns_[k].push_back(maker(value));
      for (const Value& need : flow_[maker(value)].rerun_needs)
        if (in_scope(need.tensor)) wanted.push_back(need);
    }
  }

  static void add_between(std::vector<Bytes>& differences, std::uint32_t from, std::uint32_t to,
                          Bytes bytes) {
    if (from >= to) return;
    differences[from] += bytes;
    differences[to] -= bytes;
  }

  /// Between two uses in one phase. What backward holds from a first need to a last counts in
  /// step_k, or it would be counted twice.
  void find_waiting() {
    for (std::uint32_t t = 0; t < trace_.tensors.size(); ++t) {
      if (!in_scope({t})) continue;
      const std::vector<OpId>& users = flow_.tensors[t].users;
      for (std::size_t i = 0; i + 1 < users.size(); ++i) {
        const std::uint32_t from = users[i].index, to = users[i + 1].index;
        if (backward(from) != backward(to)) continue;
        if (backward(from) && spans_[t].first <= from) continue;
        const std::span<const Value> needs = flow_.ops[to].needs;
        if (std::any_of(needs.begin(), needs.end(),
                        [&](const Value& need) { return need.tensor.index == t; }))
          add_between(waiting_, from + 1, to, trace_.tensors[t].bytes);
      }
    }
  }

  void find_prefetched(std::uint32_t lookahead) {
    const std::vector<OpRange> steps = layer_steps(trace_);
    std::vector<std::uint32_t> step_of(trace_.ops.size());
    for (std::uint32_t s = 0; s < steps.size(); ++s)
      for (std::uint32_t i = steps[s].first.index; i < steps[s].end.index; ++i) step_of[i] = s;
    for (std::uint32_t t = 0; t < spans_.size(); ++t) {
      const Span& span = spans_[t];
      if (span.first > span.last) continue;
      held_from_[span.first].push_back({t});
      held_to_[span.last].push_back({t});
      const std::uint32_t step = step_of[span.first];
      if (lookahead > 0)
        add_between(prefetched_, steps[step - std::min(step, lookahead)].first.index, span.first,
                    trace_.tensors[t].bytes);
    }
  }

  void measure(std::uint32_t k) {
    if (const auto from = held_from_.find(k); from != held_from_.end())
      held_.insert(from->second.begin(), from->second.end());
    Tensors operands;
    add(trace_.ops[k].reads, operands);
    Tensors before = operands;  // that k runs
    add(trace_.ops[k].writes, operands);
    raise(bytes(operands), k, law_.layer, law_.layer_op);
    operands.insert(held_.begin(), held_.end());
    raise(bytes(operands), k, law_.step, law_.step_op);
    before.insert(held_.begin(), held_.end());
    if (const auto reruns = reruns_.find(k); reruns != reruns_.end())
      for (const OpId again : reruns->second) {
        Tensors during = before;
        add(trace_[again].reads, during);
        add(trace_[again].writes, during);
        raise(bytes(during), k, law_.step, law_.step_op);
      }
    if (const auto to = held_to_.find(k); to != held_to_.end())
      for (const TensorId id : to->second) held_.erase(id);
  }

  static void raise(Bytes bytes, std::uint32_t op, Bytes& most, OpId& who) {
    if (bytes <= most) return;
    most = bytes;
    who = {op};
  }

  const Trace& trace_;
  const Dataflow& flow_;
  std::vector<Bytes> prefetched_, waiting_;            // by op: differences to the op before
  std::vector<Span> spans_;                            // by tensor: a checkpoint's time in backward
  std::map<std::uint32_t, std::vector<OpId>> reruns_;  // by op: run again for it
  std::map<std::uint32_t, std::vector<TensorId>> held_from_, held_to_;  // by op
  Tensors held_;
  PeakLaw law_;
};

}  // namespace

PeakLaw peak_law(const Trace& trace, const Dataflow& flow, std::uint32_t lookahead) {
  return Law(trace, flow, lookahead).run();
}

}  // namespace superneurons
