#include <fmt/core.h>

#include <algorithm>

#include "ir/check_state.h"

namespace superneurons {

Broken Checker::run(const PlanStep& step) {
  op_ = step.subject;
  const bool rerun = choice_[op_] != kNoIndex;
  if (Broken bad = may_run(step, rerun)) return bad;
  choice_[op_] = step.choice;
  if (Broken bad = discards(step, rerun)) return bad;
  for (const CheckedNeed& need : versions_.needs_of(step.op())) {
    if (Broken bad = reads(need, rerun)) return bad;
    if (!rerun) --pending_[versions_.value(need.tensor, need.version)];
  }
  Bytes transient = trace_.ops[op_].choices[step.choice].workspace;
  for (const TensorId tensor : step.discard) transient += trace_[tensor].bytes;
  for (const CheckedMake& make : versions_.makes_of(step.op())) {
    if (rerun && make.once) continue;
    const bool omitted_here = omits(op_, make.tensor);
    const bool discarded_here = discarding_[make.tensor.index] == at_;
    if (Broken bad = omitted_here     ? omitted(make)
                     : discarded_here ? discarded(make)
                                      : writes(make, rerun))
      return bad;
  }
  return within_budget("", transient);
}

/// Whether the op may run at all, and with this choice.
Broken Checker::may_run(const PlanStep& step, bool rerun) {
  const Op& op = trace_.ops[op_];
  if (step.choice >= op.choices.size())
    return broken(Law::well_formed, fmt::format("takes choice {} of {}, which has {}", step.choice,
                                                op.name, op.choices.size()));
  if (!rerun) return {};
  if (!op.rerunnable) {
    const bool update = op.phase == Phase::update;
    return broken(update ? Law::double_update : Law::forbidden_rerun,
                  fmt::format("{} runs again, but must run exactly once", op.name));
  }
  if (step.choice != choice_[op_])
    return broken(Law::two_choices, fmt::format("{} runs with choice {}, but ran with choice {}",
                                                op.name, step.choice, choice_[op_]));
  return {};
}

/// A discarded output goes to scratch of its own, so it must be written by this run, and not on top
/// of an old version.
Broken Checker::discards(const PlanStep& step, bool rerun) {
  const std::string& op = trace_.ops[op_].name;
  const auto makes = versions_.makes_of(step.op());
  for (const TensorId tensor : step.discard) {
    if (tensor.index >= trace_.tensors.size())
      return broken(Law::well_formed, fmt::format("discards tensor {}, but the trace has {}",
                                                  tensor.index, trace_.tensors.size()));
    if (discarding_[tensor.index] == at_)
      return broken(Law::bad_discard, tensor, fmt::format("discards {} twice", name(tensor)));
    discarding_[tensor.index] = at_;
    const auto make = std::find_if(makes.begin(), makes.end(), [&](const CheckedMake& candidate) {
      return candidate.tensor == tensor;
    });
    if (make == makes.end() || (rerun && make->once) || omits(op_, tensor))
      return broken(
          Law::bad_discard, tensor,
          fmt::format("discards {}, which this run of {} does not write", name(tensor), op));
    if (make->updates)
      return broken(Law::bad_discard, tensor,
                    fmt::format("discards {}, but {} writes it on top of version {}", name(tensor),
                                op, make->version - 1));
  }
  return {};
}

Broken Checker::reads(const CheckedNeed& need, bool rerun) {
  if (rerun && need.once) return {};
  if (!need.read && omits(op_, need.tensor)) return {};
  Copies& copies = copies_[need.tensor.index];
  if (!copies.device.here || copies.device.version != need.version) return unready(need, rerun);
  copies.prefetched_at = kNoIndex;
  return {};
}

/// Why the version that the op needs is not on the device.
Broken Checker::unready(const CheckedNeed& need, bool rerun) const {
  const Copies& copies = copies_[need.tensor.index];
  const std::string& op = trace_.ops[op_].name;
  const std::string wants =
      fmt::format("{} {} {} version {}", op, need.read ? "reads" : "keeps bytes of",
                  name(need.tensor), need.version);
  const std::uint32_t value = versions_.value(need.tensor, need.version);
  if (const std::uint32_t discarded = discarded_at_[value]; discarded != kNoIndex) {
    Violation bad = broken(Law::bad_discard, need.tensor,
                           fmt::format("discards {} version {}, but {} needs it at plan step {} "
                                       "before it is made again",
                                       name(need.tensor), need.version, op, at_));
    bad.step = discarded;
    bad.op = trace_.ops[plan_.steps[discarded].subject].name;
    return bad;
  }
  const std::uint32_t maker = versions_.maker[value];
  if (copies.was_on_device && maker != kNoIndex && choice_[maker] == kNoIndex)
    return broken(Law::first_run_out_of_order, need.tensor,
                  fmt::format("{} before {} made it", wants, trace_.ops[maker].name));
  if (!copies.device.here) {
    return broken(copies.was_on_device ? Law::use_after_free : Law::use_before_ready, need.tensor,
                  fmt::format("{}, which {}", wants,
                              copies.was_on_device ? "was freed" : "never was on the device"));
  }
  const std::string held = fmt::format("the device holds version {}", copies.device.version);
  if (copies.prefetched_at != kNoIndex && copies.device.version < need.version) {
    Violation bad = broken(Law::stale_host_copy, need.tensor,
                           fmt::format("prefetches version {} of {}, but {} at plan step {}",
                                       copies.device.version, name(need.tensor), wants, at_));
    bad.step = copies.prefetched_at;
    return bad;
  }
  const Law law = rerun && need.written ? Law::rerun_without_old_version : Law::stale_version;
  return broken(law, need.tensor, fmt::format("{}, but {}", wants, held));
}

Broken Checker::writes(const CheckedMake& make, bool rerun) {
  Copies& copies = copies_[make.tensor.index];
  discarded_at_[versions_.value(make.tensor, make.version)] = kNoIndex;
  copies.prefetched_at = kNoIndex;
  copies.was_on_device = true;
  if (!copies.device.here) {
    copies.device.version = make.version;
    return take(make.tensor, copies.device, device_);
  }
  const std::uint32_t before = copies.device.version;
  copies.device.version = make.version;
  return dropped(make.tensor, before, !rerun);
}

/// No run will ever make what the choice omits, so nobody may need it.
Broken Checker::omitted(const CheckedMake& make) const {
  const std::uint32_t value = versions_.value(make.tensor, make.version);
  if (pending_[value] == 0) return {};
  return broken(Law::lost_tensor, make.tensor,
                fmt::format("choice {} of {} omits {}, but {} needs it", choice_[op_],
                            trace_.ops[op_].name, name(make.tensor), who_needs(value)));
}

Broken Checker::discarded(const CheckedMake& make) {
  if (holds(make.tensor, make.version)) return {};
  const std::uint32_t value = versions_.value(make.tensor, make.version);
  discarded_at_[value] = at_;
  if (pending_[value] == 0 || can_be_made_again(make.tensor, value)) return {};
  return broken(Law::bad_discard, make.tensor,
                fmt::format("discards {} version {}, but {} needs it and it cannot be made again",
                            name(make.tensor), make.version, who_needs(value)));
}

}  // namespace superneurons
