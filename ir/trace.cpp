#include "ir/trace.h"

#include <cmath>
#include <string>
#include <unordered_set>
#include <utility>

#include "ir/result.h"
#include "ir/trace_fault.h"

namespace superneurons {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 62;
constexpr std::int64_t kLongest = std::int64_t{1}
                                  << 58;  // ns; models add such sums up, see kLatest
constexpr std::uint32_t kNever = UINT32_MAX;

std::string quoted(const std::string& name) { return '"' + name + '"'; }

/// Adds a number that must not be negative to a sum that must stay below `limit`.
bool add(std::int64_t& sum, std::int64_t number, std::int64_t limit = kLargest) {
  if (number < 0 || number >= limit - sum) return false;
  sum += number;
  return true;
}

/// A finite number that is not negative.
bool is_measure(double number) { return std::isfinite(number) && number >= 0; }

/// Walks the trace once, in order, and stops at the first law broken.
class FaultFinder {
 public:
  explicit FaultFinder(const Trace& trace) : trace_(trace) {}

  std::optional<Fault> find() {
    if (header() && tensors() && carries() && ops()) return {};
    return std::move(fault_);
  }

 private:
  struct TensorState {
    bool alive_at_start = false;
    bool written = false;
    bool needed_at_start = false;
    std::uint32_t successor = kNever;  // end: index of the `start` whose value it carries on
    std::uint32_t as_start = kNever;   // the carry that it starts or ends
    std::uint32_t as_end = kNever;
    std::uint64_t list = 0;            // last list of `once` or `omits` that it was in
    std::uint32_t listed_by = kNever;  // last op that lists it among its writes
    std::uint32_t closed_by = kNever;  // two-tensor carry: the op that first writes the `end`
  };

  bool fail(Fault::Record record, std::size_t index, std::string message) {
    fault_ = {record, static_cast<std::uint32_t>(index), std::move(message)};
    return false;
  }

  bool header() {
    const auto bad = [&](const std::string& what) { return fail(Fault::Record::header, 0, what); };
    if (trace_.tensors.size() >= kNever || trace_.ops.size() >= kNever ||
        trace_.carry.size() >= kNever)
      return bad("too many records (would be fewer than 2^32)");
    if (trace_.batch < 0) return bad("the batch is negative");
    if (trace_.dropped_records < 0) return bad("the number of dropped records is negative");
    if (!add(nanoseconds_, trace_.step_ns_untraced.count, kLongest) ||
        !add(nanoseconds_, trace_.step_ns_traced.count, kLongest))
      return bad("the time of the training step is negative or too large");
    if (!add(nanoseconds_, trace_.owned_ns.count, kLongest) ||
        !add(nanoseconds_, trace_.orphan_ns.count, kLongest))
      return bad("the device time of the recording is negative or too large");
    if (trace_.orphans < 0) return bad("the number of orphans is negative");
    for (const Bytes peak : {trace_.allocated_peak, trace_.reserved_peak})
      if (peak.count < 0 || peak.count >= kLargest)
        return bad("a peak of the program's allocator is negative or too large");
    return true;
  }

  bool tensors() {
    std::unordered_set<std::string_view> names;
    names.reserve(trace_.tensors.size());
    for (std::size_t i = 0; i < trace_.tensors.size(); ++i) {
      const Tensor& tensor = trace_.tensors[i];
      const auto bad = [&](const std::string& what) {
        return fail(Fault::Record::tensor, i,
                    "tensor " + std::to_string(i) + ' ' + quoted(tensor.name) + ' ' + what);
      };
      if (tensor.name.empty()) return bad("has no name");
      if (!names.insert(tensor.name).second) return bad("has the name of an earlier tensor");
      if (tensor.bytes.count <= 0 || !add(bytes_, tensor.bytes.count))
        return bad("has " + std::to_string(tensor.bytes.count) +
                   " bytes (would be above 0, and all sizes below 2^62 together)");
      for (const std::int64_t extent : tensor.shape)
        if (extent < 0) return bad("has a negative extent in its shape");
      if (static_cast<std::size_t>(tensor.role) >= kRoleNames.size()) return bad("has no role");
      if (tensor.freed_before && tensor.freed_before->index > trace_.ops.size())
        return bad("is freed before op " + std::to_string(tensor.freed_before->index) + " of " +
                   std::to_string(trace_.ops.size()));
      if (!is_measure(tensor.init_scale)) return bad("has an init_scale that is no size");
    }
    return true;
  }

  bool carries() {
    states_.resize(trace_.tensors.size());
    for (std::uint32_t i = 0; i < trace_.carry.size(); ++i) {
      const auto [end, start] = trace_.carry[i];
      const auto bad = [&](const std::string& what) {
        return fail(Fault::Record::carry, i, "carry " + std::to_string(i) + ' ' + what);
      };
      for (const TensorId id : {start, end})
        if (id.index >= states_.size()) return bad("names tensor " + unknown(id));
      if (states_[start.index].as_start != kNever)
        return bad("starts with " + quoted(trace_[start].name) + ", as an earlier one does");
      if (states_[end.index].as_end != kNever)
        return bad("ends with " + quoted(trace_[end].name) + ", as an earlier one does");
      if (trace_[end].bytes != trace_[start].bytes)
        return bad("is of two tensors of different sizes, " + quoted(trace_[end].name) + " and " +
                   quoted(trace_[start].name));
      if (trace_[end].freed_before)
        return bad("ends with " + quoted(trace_[end].name) + ", which the program freed");
      states_[start.index].as_start = i;
      states_[end.index].as_end = i;
      states_[start.index].alive_at_start = true;
      if (end == start) continue;
      states_[end.index].successor = start.index;
      const Role role = trace_[start].role;
      states_[start.index].needed_at_start =
          role == Role::parameter || role == Role::buffer || role == Role::optimizer_state;
    }
    return true;
  }

  bool ops() {
    std::unordered_set<std::string_view> names;
    names.reserve(trace_.ops.size());
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      op_ = i;
      if (!names.insert(trace_.ops[i].name).second) return bad("has the name of an earlier op");
      const Op& op = trace_.ops[i];
      if (!accesses(op) || !tables(op) || !choices(op) || !numbers(op)) return false;
    }
    for (std::uint32_t i = 0; i < trace_.carry.size(); ++i) {
      const TensorState& end = states_[trace_.carry[i].end.index];
      if (!end.alive_at_start && !end.written)
        return fail(Fault::Record::carry, i,
                    "carry " + std::to_string(i) + " ends with " +
                        quoted(trace_[trace_.carry[i].end].name) + ", which no op writes");
    }
    return true;
  }

  bool bad(const std::string& what) {
    return fail(Fault::Record::op, op_,
                "op " + std::to_string(op_) + ' ' + quoted(trace_.ops[op_].name) + ' ' + what);
  }
  std::string unknown(TensorId id) const {
    return std::to_string(id.index) +
           ", of which there is none (tensors: " + std::to_string(trace_.tensors.size()) + ')';
  }

  bool accesses(const Op& op) {
    // First the writes, without their effect: what closes the `start` of a carry closes it for the
    // reads of this very op.
    for (const Access& write : op.writes) {
      if (!in_range(write)) return false;
      TensorState& state = states_[write.tensor.index];
      if (state.listed_by == op_)
        return bad("lists " + quoted(trace_[write.tensor].name) + " twice among its writes");
      state.listed_by = op_;
      if (state.successor != kNever && states_[state.successor].closed_by == kNever)
        states_[state.successor].closed_by = op_;
    }
    for (const Access& read : op.reads) {
      if (!in_range(read)) return false;
      const TensorState& state = states_[read.tensor.index];
      if (!state.written && !state.alive_at_start)
        return bad("reads " + quoted(trace_[read.tensor].name) +
                   " before it was written (would be carried in, or written by an earlier op)");
      if (!needs(read.tensor)) return false;
    }
    for (const Access& write : op.writes) {
      TensorState& state = states_[write.tensor.index];
      if (!covers(trace_, write) && (state.written || state.alive_at_start) && !needs(write.tensor))
        return false;
    }
    for (const Access& write : op.writes) states_[write.tensor.index].written = true;
    return true;
  }

  bool in_range(const Access& access) {
    if (access.tensor.index >= states_.size())
      return bad("accesses tensor " + unknown(access.tensor));
    const Tensor& tensor = trace_[access.tensor];
    const std::int64_t offset = access.offset.count, length = access.length.count;
    if (offset < 0 || length <= 0 || offset > tensor.bytes.count ||
        length > tensor.bytes.count - offset)
      return bad("accesses " + std::to_string(length) + " bytes from " + std::to_string(offset) +
                 " of " + quoted(tensor.name) + ", which has " +
                 std::to_string(tensor.bytes.count));
    if (tensor.freed_before && tensor.freed_before->index <= op_)
      return bad("accesses " + quoted(tensor.name) + ", which the program freed before op " +
                 std::to_string(tensor.freed_before->index));
    return true;
  }

  /// The op needs the present value of a tensor. A carry with two tensors gives `start` up before
  /// it allocates `end`, so the op that first writes `end` comes after all who need `start`.
  bool needs(TensorId id) {
    TensorState& state = states_[id.index];
    if (!state.written) state.needed_at_start = true;
    if (state.closed_by == kNever || !state.needed_at_start) return true;
    return bad("reads " + quoted(trace_[id].name) + " though op " +
               std::to_string(state.closed_by) +
               " has begun to write the tensor that carries it on (would be read before)");
  }

  /// Marks a tensor for the list numbered lists_; false if that list has it already.
  bool first_in_list(TensorId id) {
    return std::exchange(states_[id.index].list, lists_) != lists_;
  }

  bool tables(const Op& op) {
    const auto among_writes = [&](TensorId id) {
      return id.index < states_.size() && states_[id.index].listed_by == op_;
    };
    ++lists_;
    for (const TensorId id : op.once) {
      if (!among_writes(id))
        return bad("lists tensor " + std::to_string(id.index) + " as once, but does not write it");
      if (!first_in_list(id)) return bad("lists " + quoted(trace_[id].name) + " twice as once");
    }
    for (const Choice& choice : op.choices) {
      ++lists_;
      for (const TensorId id : choice.omits) {
        if (!among_writes(id))
          return bad("may omit tensor " + std::to_string(id.index) + ", but does not write it");
        if (!first_in_list(id))
          return bad("lists " + quoted(trace_[id].name) + " twice among what a choice omits");
      }
    }
    return true;
  }

  bool choices(const Op& op) {
    if (op.choices.empty()) return bad("has no choice (would be at least one)");
    if (op.recorded >= op.choices.size())
      return bad("records choice " + std::to_string(op.recorded) + " of " +
                 std::to_string(op.choices.size()));
    for (const Choice& choice : op.choices) {
      if (!add(bytes_, choice.workspace.count))
        return bad("has a workspace of " + std::to_string(choice.workspace.count) +
                   " bytes (would be 0 or more, and all with the tensors below 2^62 together)");
      if (!add(nanoseconds_, choice.ns.count, kLongest))
        return bad("takes " + std::to_string(choice.ns.count) +
                   " ns (would be 0 or more, and all below 2^58 together)");
    }
    return true;
  }

  bool numbers(const Op& op) {
    if (op.name.empty()) return bad("has no name");
    if (static_cast<std::size_t>(op.phase) >= kPhaseNames.size()) return bad("has no phase");
    for (const Kernel& kernel : op.kernels)
      if (!add(nanoseconds_, kernel.ns.count, kLongest))
        return bad("has a kernel of a time that is negative or too large");
    for (const auto& [key, value] : op.attributes)
      if (!std::isfinite(value)) return bad("has an attribute " + quoted(key) + " without value");
    if (!add(nanoseconds_, op.host_ns.count, kLongest) ||
        !add(nanoseconds_, op.host_sync_ns.count, kLongest))
      return bad("has a host time that is negative or too large");
    if (!is_measure(op.flops)) return bad("has flops that are no number of operations");
    if (!add(moved_, op.bytes_moved.count)) return bad("has bytes_moved negative or too large");
    if (op.micro_batch < 0) return bad("has a negative micro_batch");
    if (op.launch_group < -1) return bad("has a launch_group below -1");
    return true;
  }

  const Trace& trace_;
  Fault fault_;
  std::vector<TensorState> states_;
  std::uint32_t op_ = 0;
  std::uint64_t lists_ = 0;
  std::int64_t bytes_ = 0, nanoseconds_ = 0, moved_ = 0;
};

}  // namespace

std::optional<Fault> locate_fault(const Trace& trace) { return FaultFinder(trace).find(); }

std::optional<Error> find_fault(const Trace& trace) {
  if (auto fault = locate_fault(trace))
    return Error{ErrorCode::bad_input, std::move(fault->message)};
  return {};
}

}  // namespace superneurons
