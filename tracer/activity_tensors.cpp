#include "tracer/activity_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace superneurons {
namespace {

/// The first op that has its first launch at or after each launch of the window and after its end.
std::vector<std::uint32_t> next_ops(const std::vector<std::uint32_t>& op_of, std::size_t ops) {
  std::vector<std::uint32_t> next(op_of.size() + 1, static_cast<std::uint32_t>(ops));
  std::vector<bool> begins(op_of.size());
  std::uint32_t seen = 0;
  for (std::size_t i = 0; i < op_of.size(); ++i)
    if (op_of[i] == seen) {
      begins[i] = true;
      ++seen;
    }
  for (std::size_t i = op_of.size(); i-- > 0;) next[i] = begins[i] ? op_of[i] : next[i + 1];
  return next;
}

class AllocationTable {
 public:
  AllocationTable(RangeSpan window, const std::vector<std::uint32_t>& op_of, Trace& trace)
      : window_(window), next_(next_ops(op_of, trace.ops.size())), trace_(trace) {}

  void add(const DriverAllocation& one) {
    if (one.born >= window_.last || one.freed <= window_.first || one.freed == one.born) return;
    const auto id = TensorId{static_cast<std::uint32_t>(trace_.tensors.size())};
    Tensor tensor;
    tensor.name = fmt::format("allocation{}", id.index);
    tensor.bytes = {one.bytes};
    tensor.dtype = "u8";
    const bool ends = one.freed <= window_.last;
    if (one.born < window_.first) {
      tensor.role = Role::buffer;
      if (ends) {
        tensor.freed_before = OpId{next_[one.freed - window_.first]};
        ending_.push_back(id);
      } else {
        trace_.carry.push_back({id, id});
      }
    } else {
      const std::uint32_t op = std::min(next_[one.born - window_.first],
                                        static_cast<std::uint32_t>(trace_.ops.size()) - 1);
      trace_.ops[op].writes.push_back({id, {}, tensor.bytes});
      if (ends) tensor.freed_before = OpId{std::max(next_[one.freed - window_.first], op + 1)};
      else staying_[one.bytes].push_back(id);
    }
    trace_.tensors.push_back(std::move(tensor));
  }

  std::size_t carry_on() {
    std::size_t lost = 0;
    std::map<std::int64_t, std::size_t> taken;
    for (const TensorId start : ending_) {
      const std::int64_t bytes = trace_[start].bytes.count;
      const auto heirs = staying_.find(bytes);
      std::size_t& next = taken[bytes];
      if (heirs != staying_.end() && next < heirs->second.size()) {
        trace_[start].role = Role::temporary;
        trace_.carry.push_back({heirs->second[next++], start});
        continue;
      }
      trace_[start].freed_before.reset();
      trace_.carry.push_back({start, start});
      ++lost;
    }
    return lost;
  }

 private:
  RangeSpan window_;
  std::vector<std::uint32_t> next_;
  Trace& trace_;
  std::vector<TensorId> ending_;                           // of before, freed in the window
  std::map<std::int64_t, std::vector<TensorId>> staying_;  // made in the window, by bytes
};

}  // namespace

std::size_t add_allocations(const ProgramActivity& program, RangeSpan window,
                            const std::vector<std::uint32_t>& op_of, Trace& trace) {
  AllocationTable table(window, op_of, trace);
  for (const DriverAllocation& one : program.allocations) table.add(one);
  return table.carry_on();
}

}  // namespace superneurons
