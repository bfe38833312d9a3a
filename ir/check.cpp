#include "ir/check.h"

#include <fmt/core.h>

#include <algorithm>

#include "ir/check_state.h"

namespace superneurons {

Checker::Checker(const Trace& trace, const Plan& plan, const CheckedVersions& versions)
    : trace_(trace), plan_(plan), versions_(versions) {
  copies_.resize(trace.tensors.size());
  in_home_.resize(trace.carry.size(), kNoIndex);
  pending_ = versions_.readers;
  discarded_at_.resize(pending_.size(), kNoIndex);
  discarding_.resize(trace.tensors.size(), kNoIndex);
  choice_.resize(trace.ops.size(), kNoIndex);
}

Broken Checker::check() {
  if (plan_.begin.size() != trace_.carry.size()) {
    return broken(Law::well_formed, fmt::format("the plan has {} begin entries for {} carries",
                                                plan_.begin.size(), trace_.carry.size()));
  }
  if (plan_.budget.device < 0_B || plan_.budget.host < 0_B)
    return broken(Law::well_formed, "a budget is negative");
  if (Broken bad = begin()) return bad;
  for (at_ = 0; at_ < plan_.steps.size(); ++at_) {
    op_ = kNoIndex;
    if (Broken bad = step(plan_.steps[at_])) return bad;
  }
  op_ = kNoIndex;
  return end();
}

// ---- the start ----

Broken Checker::begin() {
  for (std::uint32_t i = 0; i < trace_.carry.size(); ++i)
    if (Broken bad = begin_carry(i)) return bad;
  // A tensor that is `end` of one carry and `start` of another begins in its own home and is later
  // allocated where it must end.
  for (const bool as_end : {false, true}) {
    for (std::uint32_t i = 0; i < trace_.carry.size(); ++i) {
      const Place place = plan_.begin[i].place;
      Copies& copies = copies_[(as_end ? trace_.carry[i].end : trace_.carry[i].start).index];
      if (place == Place::device) copies.device.home_of = i;
      if (place == Place::host) copies.host.home_of = i;
    }
  }
  return {};
}

Broken Checker::begin_carry(std::uint32_t index) {
  const Carry& carry = trace_.carry[index];
  const Tensor& start = trace_[carry.start];
  const Place place = plan_.begin[index].place;
  if (place == Place::nowhere) return may_begin_nowhere(carry.start);
  if (place != Place::device && place != Place::host)
    return broken(Law::well_formed, carry.start,
                  fmt::format("begin {} of the plan is no place", index));
  if (trace_[carry.end].bytes > start.bytes)
    return broken(Law::well_formed, carry.end,
                  fmt::format("{} of {} B does not fit the home of {}, {} B", name(carry.end),
                              trace_[carry.end].bytes.count, start.name, start.bytes.count));
  ++pending_[versions_.value(carry.end, versions_.last[carry.end.index])];  // the end needs it
  in_home_[index] = carry.start.index;
  Copies& copies = copies_[carry.start.index];
  Copy& copy = place == Place::device ? copies.device : copies.host;
  copy.here = true;
  copy.home = index;
  if (place == Place::host) {
    host_ += start.bytes;
    return within_host_budget(carry.start);
  }
  copies.was_on_device = true;
  device_ += start.bytes;
  return within_budget(start.name, {});
}

Broken Checker::may_begin_nowhere(TensorId tensor) const {
  const Tensor& start = trace_[tensor];
  const std::uint32_t value = versions_.value(tensor, 0);
  if (versions_.readers[value] > 0)
    return broken(Law::lost_tensor, tensor,
                  fmt::format("{} begins nowhere, but {} needs what it was carried in with",
                              start.name, who_needs(value)));
  if (start.role == Role::parameter || start.role == Role::buffer ||
      start.role == Role::optimizer_state)
    return broken(Law::lost_tensor, tensor,
                  fmt::format("{} begins nowhere, but it is state that must survive from one "
                              "training step to the next",
                              start.name));
  return {};
}

// ---- steps ----

Broken Checker::step(const PlanStep& step) {
  if (step.kind == StepKind::run) {
    if (step.subject < trace_.ops.size()) return run(step);
    return broken(Law::well_formed, fmt::format("runs op {}, but the trace has {} ops",
                                                step.subject, trace_.ops.size()));
  }
  if (step.subject >= trace_.tensors.size())
    return broken(Law::well_formed, fmt::format("names tensor {}, but the trace has {} tensors",
                                                step.subject, trace_.tensors.size()));
  if (!step.discard.empty())
    return broken(Law::well_formed, step.tensor(), "only a run can discard");
  switch (step.kind) {
    case StepKind::free:
      return free(step.tensor());
    case StepKind::offload:
      return offload(step.tensor());
    case StepKind::prefetch:
      return prefetch(step.tensor());
    case StepKind::free_host:
      return free_host(step.tensor());
    default:
      return broken(Law::well_formed, step.tensor(), "the step is of no kind");
  }
}

Broken Checker::free(TensorId tensor) {
  Copy& copy = copies_[tensor.index].device;
  if (!copy.here)
    return broken(Law::free_of_absent, tensor,
                  fmt::format("frees {}, which is not on the device", name(tensor)));
  give_back(tensor, copy, device_);
  return dropped(tensor, copy.version, false);
}

Broken Checker::offload(TensorId tensor) {
  Copies& copies = copies_[tensor.index];
  if (!copies.device.here)
    return broken(Law::offload_of_absent, tensor,
                  fmt::format("offloads {}, which is not on the device", name(tensor)));
  if (copies.host.here) {
    const std::uint32_t before = copies.host.version;
    copies.host.version = copies.device.version;
    return dropped(tensor, before, false);
  }
  if (Broken bad = take(tensor, copies.host, host_)) return bad;
  copies.host.version = copies.device.version;
  return within_host_budget(tensor);
}

Broken Checker::prefetch(TensorId tensor) {
  Copies& copies = copies_[tensor.index];
  if (copies.device.here)
    return broken(Law::prefetch_of_resident, tensor,
                  fmt::format("prefetches {}, which is on the device already", name(tensor)));
  if (!copies.host.here)
    return broken(Law::prefetch_without_host_copy, tensor,
                  fmt::format("prefetches {}, which has no host copy", name(tensor)));
  if (Broken bad = take(tensor, copies.device, device_)) return bad;
  copies.device.version = copies.host.version;
  copies.was_on_device = true;
  copies.prefetched_at = at_;
  return within_budget(name(tensor), {});
}

Broken Checker::free_host(TensorId tensor) {
  Copy& copy = copies_[tensor.index].host;
  if (!copy.here)
    return broken(Law::free_host_of_absent, tensor,
                  fmt::format("frees the host copy of {}, which has none", name(tensor)));
  give_back(tensor, copy, host_);
  return dropped(tensor, copy.version, false);
}

// ---- copies ----

/// Allocates: in the home of a carry, whose bytes count throughout, or elsewhere.
Broken Checker::take(TensorId tensor, Copy& copy, Bytes& used) {
  copy.here = true;
  copy.home = copy.home_of;
  if (copy.home == kNoIndex) {
    used += trace_[tensor].bytes;
    return {};
  }
  std::uint32_t& occupant = in_home_[copy.home];
  if (occupant != kNoIndex)
    return broken(Law::end_differs_from_begin, tensor,
                  fmt::format("{0} takes a home that {1} has not left (would free {1} before, or "
                              "let its carry begin nowhere, where no op needs it)",
                              name(tensor), trace_.tensors[occupant].name));
  occupant = tensor.index;
  return {};
}

void Checker::give_back(TensorId tensor, Copy& copy, Bytes& used) {
  copy.here = false;
  if (copy.home == kNoIndex) used -= trace_[tensor].bytes;
  else in_home_[copy.home] = kNoIndex;
}

Broken Checker::within_budget(const std::string& tensor, Bytes transient) const {
  const Bytes wanted = device_ + transient;
  if (wanted <= plan_.budget.device) return {};
  Violation bad =
      broken(Law::over_budget,
             fmt::format("{} B on the device are {} B over the budget of {} B", wanted.count,
                         (wanted - plan_.budget.device).count, plan_.budget.device.count));
  bad.tensor = tensor;
  return bad;
}

Broken Checker::within_host_budget(TensorId tensor) const {
  if (host_ <= plan_.budget.host) return {};
  return broken(Law::over_host_budget, tensor,
                fmt::format("{} B on the host are {} B over the budget of {} B", host_.count,
                            (host_ - plan_.budget.host).count, plan_.budget.host.count));
}

/// A copy of a version is gone. Speaks up if it was the last one of a value that a first run or the
/// end still needs and no op can make again; a value that can be made again is missed when read.
Broken Checker::dropped(TensorId tensor, std::uint32_t version, bool by_first_run) {
  const std::uint32_t value = versions_.value(tensor, version);
  if (pending_[value] == 0 || holds(tensor, version) || can_be_made_again(tensor, value)) return {};
  const Law law = by_first_run ? Law::first_run_out_of_order : Law::lost_tensor;
  return broken(law, tensor,
                fmt::format("the last copy of {} version {} goes, but {} still needs it",
                            name(tensor), version, who_needs(value)));
}

bool Checker::omits(std::uint32_t op, TensorId tensor) const {
  const auto& omitted = trace_.ops[op].choices[choice_[op]].omits;
  return std::find(omitted.begin(), omitted.end(), tensor) != omitted.end();
}

bool Checker::can_be_made_again(TensorId tensor, std::uint32_t value) const {
  const std::uint32_t maker = versions_.maker[value];
  if (maker == kNoIndex || !trace_.ops[maker].rerunnable) return false;
  const auto& once = trace_.ops[maker].once;
  return std::find(once.begin(), once.end(), tensor) == once.end();
}

std::string Checker::who_needs(std::uint32_t value) const {
  const std::uint32_t reader = versions_.last_reader[value];
  if (reader == kNoIndex) return "the end";
  return choice_[reader] == kNoIndex ? trace_.ops[reader].name : "a later op or the end";
}

// ---- the end ----

Broken Checker::end() {
  for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
    if (choice_[i] != kNoIndex) continue;
    op_ = i;
    return broken(Law::op_missing, fmt::format("{} never runs", trace_.ops[i].name));
  }
  std::vector<bool> carried(trace_.tensors.size(), false), stays(trace_.tensors.size(), false);
  for (std::uint32_t i = 0; i < trace_.carry.size(); ++i) {
    if (Broken bad = end_of_carry(i)) return bad;
    carried[trace_.carry[i].start.index] = carried[trace_.carry[i].end.index] = true;
    stays[trace_.carry[i].end.index] = plan_.begin[i].place != Place::nowhere;
  }
  for (std::uint32_t i = 0; i < trace_.tensors.size(); ++i) {
    if (stays[i]) continue;
    const Law law = carried[i] ? Law::end_differs_from_begin : Law::leftover_at_end;
    if (Broken bad = absent_at_end({i}, law)) return bad;
  }
  return {};
}

Broken Checker::absent_at_end(TensorId tensor, Law law) const {
  const Copies& copies = copies_[tensor.index];
  if (!copies.device.here && !copies.host.here) return {};
  return broken(law, tensor,
                fmt::format("{} is still on the {} at the end (would be given back before)",
                            name(tensor), copies.device.here ? "device" : "host"));
}

Broken Checker::end_of_carry(std::uint32_t index) const {
  const Place place = plan_.begin[index].place;
  if (place == Place::nowhere) return {};  // like any tensor that must be gone
  const TensorId tensor = trace_.carry[index].end;
  const bool home = place == Place::device;
  const Copies& copies = copies_[tensor.index];
  const Copy& copy = home ? copies.device : copies.host;
  const std::uint32_t last = versions_.last[tensor.index];
  if (!copy.here)
    return broken(Law::end_differs_from_begin, tensor,
                  fmt::format("{} is not on the {}, where it must be at the next start (would be "
                              "kept there, as its carry began)",
                              name(tensor), home ? "device" : "host"));
  if (copy.version != last)
    return broken(Law::end_differs_from_begin, tensor,
                  fmt::format("{} ends as version {}, but its last version is {}", name(tensor),
                              copy.version, last));
  if (copy.home != index)
    return broken(
        Law::end_differs_from_begin, tensor,
        fmt::format("{} is not in the home of {}", name(tensor), name(trace_.carry[index].start)));
  if ((home ? copies.host : copies.device).here)
    return broken(Law::end_differs_from_begin, tensor,
                  fmt::format("{} is also on the {}, where it is not at the start", name(tensor),
                              home ? "host" : "device"));
  return {};
}

std::optional<Violation> check(const Trace& trace, const Plan& plan) {
  return Checker(trace, plan, checked_versions(trace)).check();
}

PlanChecker::PlanChecker(const Trace& trace)
    : trace_(&trace), versions_(std::make_shared<const CheckedVersions>(checked_versions(trace))) {}

std::optional<Violation> PlanChecker::check(const Plan& plan) const {
  return Checker(*trace_, plan, *versions_).check();
}

Error to_error(const Violation& violation) {
  std::string where = fmt::format("plan step {}", violation.step);
  if (!violation.op.empty()) where += ", op " + violation.op;
  if (!violation.tensor.empty()) where += ", tensor " + violation.tensor;
  const bool over = violation.law == Law::over_budget || violation.law == Law::over_host_budget;
  return {ErrorCode::unlawful,
          fmt::format("{}: {}: {}",
                      over ? "does not fit" : kLawNames[static_cast<std::size_t>(violation.law)],
                      where, violation.detail),
          "",
          0,
          {}};
}

}  // namespace superneurons
