#include "ir/live_sets.h"

#include <algorithm>

namespace superneurons {
namespace {

/// What happens to the set of live tensors at each op, without sizes.
struct Changes {
  std::vector<TensorId> at_start;
  std::vector<std::vector<TensorId>> born, died;  // by op; never both of one tensor
  std::vector<std::vector<TensorId>> passing;  // written by the op, live neither before nor after
};

/// Walks the touches of one tensor. Its current value lives from its maker to its last reader, or
/// to the end if the next training step needs it.
class Life {
 public:
  Life(const Dataflow& flow, TensorId id, Changes& changes)
      : flow_(flow), of_(flow[id]), id_(id), changes_(changes) {}

  void follow() {
    // State of which no op reads the old value is there at the start, but nobody needs it.
    bool live = of_.alive_at_start && of_.needed_at_start &&
                (of_.users.empty() || has(flow_[of_.users[0]].needs));
    if (live) changes_.at_start.push_back(id_);
    for (std::size_t i = 0; i < of_.users.size(); ++i) {
      const OpId op = of_.users[i];
      const bool makes = has(flow_[op].makes);
      const bool lives_on = wanted_after(i);
      if (lives_on && !live) changes_.born[op.index].push_back(id_);
      if (live && !lives_on) changes_.died[op.index].push_back(id_);
      if (makes && !live && !lives_on) changes_.passing[op.index].push_back(id_);
      live = lives_on;
    }
  }

 private:
  bool has(std::span<const Value> values) const {
    return std::any_of(values.begin(), values.end(),
                       [&](const Value& value) { return value.tensor == id_; });
  }

  /// Whether the value that the tensor has after its i-th user is needed later: by the next user,
  /// or by the next training step. A user that neither needs nor makes it cannot be.
  bool wanted_after(std::size_t i) const {
    if (i + 1 < of_.users.size()) return has(flow_[of_.users[i + 1]].needs);
    return of_.needed_at_end;
  }

  const Dataflow& flow_;
  const TensorFlow& of_;
  TensorId id_;
  Changes& changes_;
};

Changes changes_of(const Trace& trace, const Dataflow& flow, std::span<const Role> roles) {
  Changes changes;
  for (auto* by_op : {&changes.born, &changes.died, &changes.passing})
    by_op->resize(trace.ops.size());
  for (std::uint32_t t = 0; t < trace.tensors.size(); ++t)
    if (std::find(roles.begin(), roles.end(), trace.tensors[t].role) != roles.end())
      Life(flow, {t}, changes).follow();
  return changes;
}

/// Sums over the live set, and what it was before the step where it differs.
class Sums {
 public:
  explicit Sums(const Trace& trace) : trace_(trace) {}
  void add(std::span<const TensorId> ids) {
    for (const TensorId id : ids) bytes += trace_[id].bytes;
    tensors += static_cast<std::uint32_t>(ids.size());
  }
  void remove(std::span<const TensorId> ids) {
    for (const TensorId id : ids) bytes -= trace_[id].bytes;
    tensors -= static_cast<std::uint32_t>(ids.size());
  }
  Bytes bytes{};
  std::uint32_t tensors = 0;

 private:
  const Trace& trace_;
};

/// A tensor that is born and dies within one step, or dies and is born again, is no difference.
void cancel_pairs(std::vector<TensorId>& born, std::vector<TensorId>& died) {
  std::sort(born.begin(), born.end());
  std::sort(died.begin(), died.end());
  std::vector<TensorId> only_born, only_died;
  std::set_difference(born.begin(), born.end(), died.begin(), died.end(),
                      std::back_inserter(only_born));
  std::set_difference(died.begin(), died.end(), born.begin(), born.end(),
                      std::back_inserter(only_died));
  born = std::move(only_born);
  died = std::move(only_died);
}

LiveStep step_of(OpRange ops, const Changes& changes, Sums& live) {
  LiveStep step;
  step.ops = ops;
  step.in = live.bytes;
  for (std::uint32_t i = ops.first.index; i < ops.end.index; ++i) {
    // While the op runs, what it reads for the last time is there beside what it makes.
    Sums during = live;
    during.add(changes.born[i]);
    during.add(changes.passing[i]);
    if (during.bytes > step.peak || i == ops.first.index) {
      step.peak = during.bytes;
      step.tensors = during.tensors;
    }
    live.add(changes.born[i]);
    live.remove(changes.died[i]);
    step.born.insert(step.born.end(), changes.born[i].begin(), changes.born[i].end());
    step.died.insert(step.died.end(), changes.died[i].begin(), changes.died[i].end());
  }
  step.out = live.bytes;
  cancel_pairs(step.born, step.died);
  return step;
}

}  // namespace

std::vector<OpRange> op_steps(const Trace& trace) {
  std::vector<OpRange> steps;
  steps.reserve(trace.ops.size());
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) steps.push_back({{i}, {i + 1}});
  return steps;
}

std::vector<OpRange> layer_steps(const Trace& trace) {
  std::vector<OpRange> steps;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    if (!steps.empty() && !op.layer.empty()) {
      const Op& before = trace.ops[i - 1];
      if (before.layer == op.layer && before.phase == op.phase) {
        steps.back().end = {i + 1};
        continue;
      }
    }
    steps.push_back({{i}, {i + 1}});
  }
  return steps;
}

LiveSets live_sets(const Trace& trace, const Dataflow& flow, std::span<const OpRange> steps,
                   std::span<const Role> roles) {
  const Changes changes = changes_of(trace, flow, roles);
  LiveSets sets;
  sets.at_start = changes.at_start;
  sets.steps.reserve(steps.size());
  Sums live(trace);
  live.add(sets.at_start);
  for (const OpRange& ops : steps) {
    sets.steps.push_back(step_of(ops, changes, live));
    if (sets.steps.back().peak > sets.steps[sets.peak_step].peak)
      sets.peak_step = static_cast<std::uint32_t>(sets.steps.size() - 1);
  }
  return sets;
}

void LiveSet::pass(const LiveStep& step) {
  for (const TensorId id : step.died) live_.erase(id);
  live_.insert(step.born.begin(), step.born.end());
}

}  // namespace superneurons
