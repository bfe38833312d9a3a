// The checker's state machine; check() is its only user.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/check.h"
#include "ir/check_versions.h"

namespace superneurons {

using Broken = std::optional<Violation>;

/// One copy of a tensor, on the device or on the host.
struct Copy {
  bool here = false;
  std::uint32_t version = 0;
  std::uint32_t home = kNoIndex;     // the carry in whose home it is, if any
  std::uint32_t home_of = kNoIndex;  // the carry in whose home it is put when allocated
};

struct Copies {
  Copy device, host;
  bool was_on_device = false;
  std::uint32_t prefetched_at = kNoIndex;  // brought by this plan step and not read since
};

/// Steps through the plan. Members that end in `at` are plan steps.
class Checker {
 public:
  Checker(const Trace& trace, const Plan& plan, const CheckedVersions& versions);
  Broken check();

 private:
  Broken begin();
  Broken begin_carry(std::uint32_t index);
  Broken may_begin_nowhere(TensorId tensor) const;
  Broken step(const PlanStep& step);
  Broken run(const PlanStep& step);
  Broken may_run(const PlanStep& step, bool rerun);
  Broken discards(const PlanStep& step, bool rerun);
  Broken reads(const CheckedNeed& need, bool rerun);
  Broken unready(const CheckedNeed& need, bool rerun) const;
  Broken writes(const CheckedMake& make, bool rerun);
  Broken omitted(const CheckedMake& make) const;
  Broken discarded(const CheckedMake& make);
  Broken take(TensorId tensor, Copy& copy, Bytes& used);
  void give_back(TensorId tensor, Copy& copy, Bytes& used);
  Broken free(TensorId tensor);
  Broken offload(TensorId tensor);
  Broken prefetch(TensorId tensor);
  Broken free_host(TensorId tensor);
  Broken dropped(TensorId tensor, std::uint32_t version, bool by_first_run);
  Broken within_budget(const std::string& tensor, Bytes transient) const;
  Broken within_host_budget(TensorId tensor) const;
  Broken end();
  Broken end_of_carry(std::uint32_t index) const;
  Broken absent_at_end(TensorId tensor, Law law) const;

  bool omits(std::uint32_t op, TensorId tensor) const;
  bool can_be_made_again(TensorId tensor, std::uint32_t value) const;
  std::string who_needs(std::uint32_t value) const;
  const std::string& name(TensorId tensor) const { return trace_[tensor].name; }
  bool holds(TensorId tensor, std::uint32_t version) const {
    const Copies& copy = copies_[tensor.index];
    return (copy.device.here && copy.device.version == version) ||
           (copy.host.here && copy.host.version == version);
  }

  Violation broken(Law law, std::string detail) const {
    return {law, at_, op_ == kNoIndex ? "" : trace_.ops[op_].name, "", std::move(detail)};
  }
  Violation broken(Law law, TensorId tensor, std::string detail) const {
    return {law, at_, op_ == kNoIndex ? "" : trace_.ops[op_].name, name(tensor), std::move(detail)};
  }

  const Trace& trace_;
  const Plan& plan_;
  const CheckedVersions& versions_;
  std::uint32_t at_ = 0;
  std::uint32_t op_ = kNoIndex;
  std::vector<Copies> copies_;               // by tensor
  std::vector<std::uint32_t> in_home_;       // by carry: the tensor in its home
  std::vector<std::uint32_t> pending_;       // by value: first runs (and the end) still to need it
  std::vector<std::uint32_t> discarded_at_;  // by value: it went to scratch and exists nowhere
  std::vector<std::uint32_t> discarding_;    // by tensor: latest plan step that discarded it
  std::vector<std::uint32_t> choice_;        // by op: of its first run, kNoIndex before
  Bytes device_{}, host_{};                  // in use now; homes throughout
};

}  // namespace superneurons
