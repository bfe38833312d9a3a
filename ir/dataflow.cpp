#include "ir/dataflow.h"

#include <algorithm>

namespace superneurons {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Whether the program carries the tensor's value as state, even if no op of the step reads it.
bool is_state(Role role) {
  return role == Role::parameter || role == Role::buffer || role == Role::optimizer_state;
}

void add_user(TensorFlow& tensor, OpId op) {
  if (tensor.users.empty() || tensor.users.back() != op) tensor.users.push_back(op);
}

/// Where the values of one op lie in Dataflow::values.
struct Part {
  std::size_t first = 0, count = 0;
};
struct Parts {
  Part needs, makes, rerun_needs, rerun_makes;
};

class Analysis {
 public:
  explicit Analysis(const Trace& trace) : trace_(trace) {
    out_.tensors.resize(trace.tensors.size());
    for (const Carry& carry : trace.carry) tensor(carry.start).alive_at_start = true;
  }

  Dataflow run() && {
    std::vector<Parts> parts;
    parts.reserve(trace_.ops.size());
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) parts.push_back(parts_of({i}));
    const auto at = [&](const Part& part) {
      return std::span<const Value>(out_.values).subspan(part.first, part.count);
    };
    out_.ops.reserve(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Parts& of = parts[i];
      const std::vector<Choice>& choices = trace_.ops[i].choices;
      const bool omits = std::any_of(choices.begin(), choices.end(),
                                     [](const Choice& choice) { return !choice.omits.empty(); });
      out_.ops.push_back(
          {at(of.needs), at(of.makes), at(of.rerun_needs), at(of.rerun_makes), omits});
    }
    for (const Carry& carry : trace_.carry) {
      TensorFlow& start = tensor(carry.start);
      start.needed_at_start |= is_state(trace_[carry.start].role);
      tensor(carry.end).needed_at_end = start.needed_at_start;
    }
    return std::move(out_);
  }

 private:
  TensorFlow& tensor(TensorId id) { return out_.tensors[id.index]; }

  Part since(std::size_t first) const { return {first, out_.values.size() - first}; }
  bool has(std::size_t first, TensorId id) const {
    return std::any_of(out_.values.begin() + static_cast<std::ptrdiff_t>(first), out_.values.end(),
                       [&](const Value& value) { return value.tensor == id; });
  }

  /// Adds the versions of one op and moves the tensors it writes to their next version.
  Parts parts_of(OpId id) {
    const Op& op = trace_[id];
    Parts parts;
    std::size_t first = out_.values.size();
    const auto need = [&](TensorId id_of) {
      if (has(first, id_of)) return;
      TensorFlow& state = tensor(id_of);
      out_.values.push_back({id_of, state.last});
      if (state.last == 0) state.needed_at_start = true;
    };
    for (const Access& read : op.reads) need(read.tensor);
    for (const Access& write : op.writes) {
      const TensorFlow& state = tensor(write.tensor);
      if (!covers(trace_, write) && (state.last > 0 || state.alive_at_start)) need(write.tensor);
    }
    parts.needs = since(first);
    for (const Access& access : op.reads) add_user(tensor(access.tensor), id);
    first = out_.values.size();
    for (const Access& write : op.writes) {
      TensorFlow& state = tensor(write.tensor);
      add_user(state, id);
      if (has(first, write.tensor)) continue;
      out_.values.push_back({write.tensor, ++state.last});
      state.makers.push_back(id);
    }
    parts.makes = since(first);
    parts.rerun_needs = without_once(op, parts.needs);
    parts.rerun_makes = without_once(op, parts.makes);
    return parts;
  }

  /// The same part if nothing is in `once`.
  Part without_once(const Op& op, Part part) {
    if (op.once.empty()) return part;
    const std::size_t first = out_.values.size();
    for (std::size_t i = part.first; i < part.first + part.count; ++i)
      if (const Value value = out_.values[i]; !contains(op.once, value.tensor))
        out_.values.push_back(value);
    return since(first);
  }

  const Trace& trace_;
  Dataflow out_;
};

}  // namespace

Dataflow analyze(const Trace& trace) { return Analysis(trace).run(); }

}  // namespace superneurons
