#include "ir/check_versions.h"

#include <algorithm>

namespace superneurons {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Walks the ops in recorded order and fills needs, makes and last versions.
class Walk {
 public:
  Walk(const Trace& trace, CheckedVersions& out)
      : trace_(trace),
        out_(out),
        place_(trace.tensors.size(), kNoIndex),
        made_(trace.tensors.size(), kNoIndex) {
    alive_.resize(trace.tensors.size(), false);
    for (const Carry& carry : trace.carry) alive_[carry.start.index] = true;
    out_.last.resize(trace.tensors.size(), 0);
  }

  void op(const Op& op) {
    const std::size_t first_need = out_.needs.size(), first_make = out_.makes.size();
    out_.first_need.push_back(static_cast<std::uint32_t>(first_need));
    out_.first_make.push_back(static_cast<std::uint32_t>(first_make));
    for (const Access& read : op.reads) need(op, read.tensor, true, first_need);
    for (const Access& write : op.writes) {
      // Bytes of a tensor that nobody wrote and that came from nowhere are not worth keeping.
      const bool keeps = out_.last[write.tensor.index] > 0 || alive_[write.tensor.index];
      if (!covers(trace_, write) && keeps) need(op, write.tensor, false, first_need);
    }
    for (const Access& write : op.writes) make(op, write.tensor, first_need, first_make);
  }

 private:
  void need(const Op& op, TensorId tensor, bool read, std::size_t first) {
    std::uint32_t& place = place_[tensor.index];
    if (place != kNoIndex && place >= first) return;
    place = static_cast<std::uint32_t>(out_.needs.size());
    out_.needs.push_back({tensor, out_.last[tensor.index], contains(op.once, tensor), false, read});
  }

  void make(const Op& op, TensorId tensor, std::size_t first_need, std::size_t first_make) {
    std::uint32_t& made = made_[tensor.index];
    if (made != kNoIndex && made >= first_make) return;  // a second range of the same tensor
    made = static_cast<std::uint32_t>(out_.makes.size());
    bool updates = false;
    const std::uint32_t place = place_[tensor.index];
    if (place != kNoIndex && place >= first_need) {
      out_.needs[place].written = true;
      updates = true;
    }
    out_.makes.push_back({tensor, ++out_.last[tensor.index], contains(op.once, tensor), updates});
  }

  const Trace& trace_;
  CheckedVersions& out_;
  std::vector<std::uint32_t> place_;  // by tensor: its latest entry in needs
  std::vector<std::uint32_t> made_;   // by tensor: its latest entry in makes
  std::vector<bool> alive_;
};

void number_values(CheckedVersions& out) {
  out.first_value.reserve(out.last.size() + 1);
  std::uint32_t values = 0;
  for (const std::uint32_t last : out.last) {
    out.first_value.push_back(values);
    values += last + 1;
  }
  out.first_value.push_back(values);
  out.readers.resize(values, 0);
  out.last_reader.resize(values, kNoIndex);
  out.maker.resize(values, kNoIndex);
}

}  // namespace

CheckedVersions checked_versions(const Trace& trace) {
  CheckedVersions out;
  Walk walk(trace, out);
  for (const Op& op : trace.ops) walk.op(op);
  out.first_need.push_back(static_cast<std::uint32_t>(out.needs.size()));
  out.first_make.push_back(static_cast<std::uint32_t>(out.makes.size()));
  number_values(out);
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    for (const CheckedNeed& need : out.needs_of({i})) {
      const std::uint32_t value = out.value(need.tensor, need.version);
      ++out.readers[value];
      out.last_reader[value] = i;
    }
    for (const CheckedMake& make : out.makes_of({i}))
      out.maker[out.value(make.tensor, make.version)] = i;
  }
  return out;
}

}  // namespace superneurons
