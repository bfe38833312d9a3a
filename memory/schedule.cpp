#include "memory/schedule.h"

#include <fmt/format.h>

#include <algorithm>

namespace superneurons {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

constexpr std::int32_t kAbsent = -1;

/// What is known of a tensor in one space; numbers are requests.
struct Holding {
  std::int32_t request = kAbsent;     // where it is now
  std::int32_t start_home = kNoHome;  // home it begins in
  std::int32_t end_home = kNoHome;    // home it must end in
  std::int32_t home() const { return end_home != kNoHome ? end_home : start_home; }
};

class Walk {
 public:
  Walk(const Trace& trace, const Plan& plan, const ScheduleOptions& options)
      : trace_(trace),
        plan_(plan),
        options_(options),
        tensors_(trace.tensors.size()),
        ran_(trace.ops.size()) {
    out_.requests.reserve(trace.tensors.size() + plan.steps.size() / 4);
    out_.events.reserve(2 * trace.tensors.size() + plan.steps.size() / 4);
    out_.first.reserve(plan.steps.size() + 1);
    if (options.residency) out_.residency.reserve(plan.steps.size());
  }

  Schedule run() && {
    take_homes();
    out_.live_peak = now_.total;
    for (step_ = 0; step_ < plan_.steps.size() && !out_.over; ++step_) {
      out_.first.push_back(static_cast<std::uint32_t>(out_.requests.size()));
      const PlanStep& step = plan_.steps[step_];
      lent_ = {};
      if (step.kind == StepKind::run) run_op(step);
      else move(step);
      out_.ready.resize(step_ + 1, static_cast<std::uint32_t>(out_.events.size()));
      count();
    }
    out_.first.push_back(static_cast<std::uint32_t>(out_.requests.size()));
    if (!out_.over) check_end();
    return std::move(out_);
  }

 private:
  Holding& holding(Space space, TensorId tensor) {
    return tensors_[tensor.index][static_cast<std::size_t>(space)];
  }
  const std::string& name(TensorId tensor) const { return trace_[tensor].name; }
  std::size_t role(TensorId tensor) const { return static_cast<std::size_t>(trace_[tensor].role); }

  template <class... Args>
  void fault(fmt::format_string<Args...> text, Args&&... args) {
    if (!out_.fault.empty()) return;
    out_.fault =
        fmt::format("plan step {}: {}", step_, fmt::format(text, std::forward<Args>(args)...));
  }

  /// Appends a request; nothing for a tensor of no bytes.
  std::int32_t request(Space space, Use use, TensorId tensor, Bytes bytes, std::int32_t home) {
    if (bytes <= 0_B) {
      fault("a range of {} bytes", bytes.count);
      return kAbsent;
    }
    const auto number = static_cast<std::uint32_t>(out_.requests.size());
    out_.requests.push_back({{space, use, tensor, {{}, bytes}}, step_, home});
    if (home == kNoHome) out_.events.push_back({number, true});
    return static_cast<std::int32_t>(number);
  }

  void take_homes() {
    if (plan_.begin.size() != trace_.carry.size())
      fault("begin has {} entries for {} carries", plan_.begin.size(), trace_.carry.size());
    const std::size_t count = std::min(plan_.begin.size(), trace_.carry.size());
    for (std::size_t i = 0; i < count; ++i) {
      if (plan_.begin[i].place != Place::nowhere) take_home(trace_.carry[i], plan_.begin[i].place);
    }
    out_.homes = static_cast<std::uint32_t>(out_.requests.size());
    occupants_.assign(out_.homes, true);
  }

  void take_home(const Carry& carry, Place place) {
    const auto tensors = trace_.tensors.size();
    if (carry.start.index >= tensors || carry.end.index >= tensors)
      return fault("a carry of a tensor that does not exist");
    const Bytes bytes = trace_[carry.start].bytes;
    if (trace_[carry.end].bytes != bytes)
      return fault("'{}' and '{}' are carried but differ in size", name(carry.end),
                   name(carry.start));
    const Space space = place == Place::device ? Space::device : Space::host;
    Holding& start = holding(space, carry.start);
    if (start.request != kAbsent) return fault("'{}' is carried twice", name(carry.start));
    start.request = request(space, Use::tensor, carry.start, bytes, kNoHome);
    start.start_home = start.request;
    holding(space, carry.end).end_home = start.request;
    if (start.request == kAbsent) return;
    if (space == Space::host) host_ += bytes;
    else add(carry.start, bytes);
  }

  /// What is alive during this plan step.
  void count() {
    const Bytes total = now_.total + lent_;
    if (total > out_.live_peak) {
      out_.live_peak = total;
      out_.live_peak_step = step_;
    }
    out_.over = total > options_.device || host_ > options_.host;
    if (!options_.residency) return;
    out_.residency.push_back(now_);
    out_.residency.back().total = total;
    out_.residency.back().workspace = lent_;
  }

  /// Takes a range for the whole of an absent tensor: its home if it has one.
  void take(Space space, TensorId tensor) {
    Holding& held = holding(space, tensor);
    const Bytes bytes = trace_[tensor].bytes;
    const std::int32_t home = held.home();
    if (home != kNoHome) {
      if (occupants_[home])
        return fault("'{}' needs the {} home that '{}' is still in (free that first)", name(tensor),
                     space == Space::device ? "device" : "host",
                     name(out_.requests[home].allocation.tensor));
      occupants_[home] = true;
    }
    held.request = request(space, Use::tensor, tensor, bytes, home);
    if (home != kNoHome || held.request == kAbsent) return;
    if (space == Space::host) host_ += bytes;
    else add(tensor, bytes);
  }

  void give_back(Space space, TensorId tensor) {
    Holding& held = holding(space, tensor);
    const auto number = static_cast<std::uint32_t>(held.request);
    const std::int32_t home = number < out_.homes ? held.request : out_.requests[number].home;
    held.request = kAbsent;
    if (home != kNoHome) {
      occupants_[home] = false;
      return;
    }
    out_.events.push_back({number, false});
    if (space == Space::host) host_ -= trace_[tensor].bytes;
    else add(tensor, 0_B - trace_[tensor].bytes);
  }

  void add(TensorId tensor, Bytes bytes) {
    now_.total += bytes;
    now_.by_role[role(tensor)] += bytes;
  }

  void run_op(const PlanStep& step) {
    transient_.clear();
    if (step.subject >= trace_.ops.size() || step.choice >= trace_.ops[step.subject].choices.size())
      fault("runs an op or a choice that does not exist");
    else grant(step, trace_[step.op()]);
    for (const std::uint32_t number : transient_) out_.events.push_back({number, false});
  }

  /// What one run takes: the outputs that are absent, in the order of op.writes, then workspace,
  /// then scratch.
  void grant(const PlanStep& step, const Op& op) {
    const Choice& choice = op.choices[step.choice];
    const bool rerun = ran_[step.subject];
    ran_[step.subject] = true;
    const auto skipped = [&](TensorId tensor) {
      return contains(choice.omits, tensor) || (rerun && contains(op.once, tensor));
    };
    for (const Access& write : op.writes) {
      if (write.tensor.index >= tensors_.size()) return fault("op '{}' writes no tensor", op.name);
      if (contains(step.discard, write.tensor) || skipped(write.tensor)) continue;
      if (holding(Space::device, write.tensor).request == kAbsent)
        take(Space::device, write.tensor);
    }
    out_.ready.push_back(static_cast<std::uint32_t>(out_.events.size()));
    if (choice.workspace > 0_B) lend(Use::workspace, {}, choice.workspace);
    if (step.discard.empty()) return;
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const TensorId tensor = op.writes[i].tensor;
      const auto same = [&](const Access& write) { return write.tensor == tensor; };
      const bool again = std::any_of(op.writes.begin(), op.writes.begin() + i, same);
      if (again || skipped(tensor) || !contains(step.discard, tensor)) continue;
      lend(Use::scratch, tensor, trace_[tensor].bytes);
    }
  }

  /// Takes a range for the duration of this plan step.
  void lend(Use use, TensorId tensor, Bytes bytes) {
    const std::int32_t number = request(Space::device, use, tensor, bytes, kNoHome);
    if (number == kAbsent) return;
    transient_.push_back(static_cast<std::uint32_t>(number));
    lent_ += bytes;
  }

  void move(const PlanStep& step) {
    const TensorId tensor = step.tensor();
    if (tensor.index >= tensors_.size()) return fault("a tensor that does not exist");
    const bool on_device = holding(Space::device, tensor).request != kAbsent;
    const bool on_host = holding(Space::host, tensor).request != kAbsent;
    switch (step.kind) {
      case StepKind::run:
        return;
      case StepKind::free:
        if (!on_device) return fault("frees '{}', which is not on the device", name(tensor));
        return give_back(Space::device, tensor);
      case StepKind::offload:
        if (!on_device) return fault("offloads '{}', which is not on the device", name(tensor));
        if (!on_host) take(Space::host, tensor);
        return;
      case StepKind::prefetch:
        if (on_device) return fault("prefetches '{}', which is on the device", name(tensor));
        if (!on_host) return fault("prefetches '{}', which is not on the host", name(tensor));
        return take(Space::device, tensor);
      case StepKind::free_host:
        if (!on_host) return fault("frees '{}' on the host, where it is not", name(tensor));
        return give_back(Space::host, tensor);
    }
  }

  /// A tensor that is both a start and an end has two homes and must have moved to the latter.
  void check_end() {
    for (std::uint32_t i = 0; i < tensors_.size(); ++i) {
      for (const Holding& held : tensors_[i]) {
        if (held.request == kAbsent || held.end_home == kNoHome) continue;
        const std::int32_t at = static_cast<std::uint32_t>(held.request) < out_.homes
                                    ? held.request
                                    : out_.requests[held.request].home;
        if (at != held.end_home) fault("'{}' does not end in the home it is carried to", name({i}));
      }
    }
  }

  const Trace& trace_;
  const Plan& plan_;
  const ScheduleOptions& options_;
  Schedule out_;
  std::vector<std::array<Holding, 2>> tensors_;  // by Space
  std::vector<bool> ran_;
  std::vector<bool> occupants_;  // by home: whether a tensor is in it
  std::vector<std::uint32_t> transient_;
  Residency now_;  // without what is lent
  Bytes lent_{};   // to the current step: workspace and scratch
  Bytes host_{};
  std::uint32_t step_ = 0;
};

}  // namespace

Schedule schedule(const Trace& trace, const Plan& plan, const ScheduleOptions& options) {
  return Walk(trace, plan, options).run();
}

}  // namespace superneurons
