// Runs a plan literally, on symbols: each tensor holds a hash per byte segment, an op's outputs are
// a hash of what it read. It knows nothing of versions, so it judges check() from the other side:
// a plan that it finds harmless ends the training step with the very values of the recorded order,
// never touches what is absent, and stays within its budgets.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "ir/plan.h"

namespace superneurons {

class ValueReplay {
 public:
  explicit ValueReplay(const Trace& trace) : trace_(trace) {
    cut_segments();
    find_defined();
  }

  /// Why the plan does harm, or nothing. Budgets count bytes of homes throughout.
  std::optional<std::string> harm(const Plan& plan) {
    const std::vector<Content> wanted = recorded(plan);
    if (wanted.empty()) return "an op never runs or has no such choice";
    start(plan);
    for (const PlanStep& step : plan.steps)
      if (auto why = this->step(plan, step)) return why;
    return compare_end(plan, wanted);
  }

 private:
  using Content = std::vector<std::uint64_t>;  // by segment
  using Copy = std::optional<Content>;
  struct Segments {
    std::vector<std::int64_t> cuts;  // offsets where a segment begins, and the end
  };

  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = (a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2))) + b;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }

  void cut_segments() {
    segments_.resize(trace_.tensors.size());
    for (std::size_t i = 0; i < trace_.tensors.size(); ++i)
      segments_[i].cuts = {0, trace_.tensors[i].bytes.count};
    for (const Op& op : trace_.ops)
      for (const auto* accesses : {&op.reads, &op.writes})
        for (const Access& access : *accesses) {
          auto& cuts = segments_[access.tensor.index].cuts;
          cuts.push_back(access.offset.count);
          cuts.push_back((access.offset + access.length).count);
        }
    for (Segments& one : segments_) {
      std::sort(one.cuts.begin(), one.cuts.end());
      one.cuts.erase(std::unique(one.cuts.begin(), one.cuts.end()), one.cuts.end());
    }
  }

  std::size_t count(std::size_t tensor) const { return segments_[tensor].cuts.size() - 1; }

  template <class Function>
  void each_segment(const Access& access, Function function) const {
    const auto& cuts = segments_[access.tensor.index].cuts;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i)
      if (cuts[i] >= access.offset.count && cuts[i] < (access.offset + access.length).count)
        function(i);
  }

  /// Bytes that nobody wrote may be read; what they hold must not matter.
  void find_defined() {
    std::vector<std::vector<bool>> defined(trace_.tensors.size());
    for (std::size_t i = 0; i < defined.size(); ++i) defined[i].resize(count(i), false);
    for (const Carry& carry : trace_.carry)
      defined[carry.start.index].assign(count(carry.start.index), true);
    defined_.resize(trace_.ops.size());
    for (std::size_t i = 0; i < trace_.ops.size(); ++i) {
      for (const Access& read : trace_.ops[i].reads)
        defined_[i].push_back(defined[read.tensor.index]);
      for (const Access& write : trace_.ops[i].writes)
        each_segment(write, [&](std::size_t s) { defined[write.tensor.index][s] = true; });
    }
    defined_at_end_ = defined;
  }

  Content initial(std::uint32_t tensor) const {
    Content content;
    for (std::size_t s = 0; s < count(tensor); ++s) content.push_back(mix(tensor + 1, s));
    return content;
  }

  Content garbage(std::uint32_t tensor) {
    Content content;
    for (std::size_t s = 0; s < count(tensor); ++s) content.push_back(mix(~0ULL, ++garbage_));
    return content;
  }

  static bool contains(const std::vector<TensorId>& ids, TensorId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  }

  /// Everything kept, recorded order, the choices of the plan. Empty if the plan lacks an op.
  std::vector<Content> recorded(const Plan& plan) {
    std::vector<std::optional<std::uint32_t>> choices(trace_.ops.size());
    for (const PlanStep& step : plan.steps)
      if (step.kind == StepKind::run && step.subject < choices.size() && !choices[step.subject])
        choices[step.subject] = step.choice;
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i)
      if (!choices[i] || *choices[i] >= trace_.ops[i].choices.size()) return {};
    device_.assign(trace_.tensors.size(), {});
    for (std::uint32_t i = 0; i < trace_.tensors.size(); ++i) device_[i] = initial(i);
    runs_.assign(trace_.ops.size(), 0);
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) run(run_step({i}, *choices[i]));
    std::vector<Content> end;
    for (const Copy& content : device_) end.push_back(*content);
    return end;
  }

  void start(const Plan& plan) {
    device_.assign(trace_.tensors.size(), {});
    host_.assign(trace_.tensors.size(), {});
    runs_.assign(trace_.ops.size(), 0);
    for (std::size_t i = 0; i < trace_.carry.size(); ++i) {
      const std::uint32_t tensor = trace_.carry[i].start.index;
      if (plan.begin[i].place == Place::device) device_[tensor] = initial(tensor);
      if (plan.begin[i].place == Place::host) host_[tensor] = initial(tensor);
    }
  }

  std::optional<std::string> step(const Plan& plan, const PlanStep& step) {
    if (step.kind == StepKind::run) {
      const Op& op = trace_[step.op()];
      if (auto why = run(step)) return why;
      Bytes transient = op.choices[step.choice].workspace;
      for (const TensorId tensor : step.discard) transient += trace_[tensor].bytes;
      return homes_and_budgets(plan, transient);
    }
    Copy& device = device_[step.subject];
    Copy& host = host_[step.subject];
    switch (step.kind) {
      case StepKind::free:
        if (!device) return "frees what is absent";
        device.reset();
        break;
      case StepKind::offload:
        if (!device) return "offloads what is absent";
        host = device;
        break;
      case StepKind::prefetch:
        if (device || !host) return "prefetches what is there, or what the host has not";
        device = host;
        break;
      default:
        if (!host) return "frees an absent host copy";
        host.reset();
    }
    return homes_and_budgets(plan, {});
  }

  std::optional<std::string> run(const PlanStep& step) {
    const Op& op = trace_[step.op()];
    const bool rerun = runs_[step.subject]++ > 0;
    std::uint64_t digest = mix(77, step.subject);
    if (rerun && !op.rerunnable) digest = mix(digest, runs_[step.subject]);  // harm, if it matters
    std::uint64_t once_digest = digest;
    for (std::size_t r = 0; r < op.reads.size(); ++r) {
      const Access& read = op.reads[r];
      const bool once = contains(op.once, read.tensor);
      if (rerun && once) continue;
      const Copy& content = device_[read.tensor.index];
      if (!content) return op.name + " reads what is absent";
      each_segment(read, [&](std::size_t s) {
        if (!defined_[step.subject][r][s]) return;
        once_digest = mix(once_digest, (*content)[s]);
        if (!once) digest = mix(digest, (*content)[s]);
      });
    }
    for (const Access& write : op.writes) {
      const bool once = contains(op.once, write.tensor);
      if ((rerun && once) || contains(step.discard, write.tensor) ||
          contains(op.choices[step.choice].omits, write.tensor))
        continue;
      Copy& content = device_[write.tensor.index];
      if (!content) content = garbage(write.tensor.index);
      each_segment(write, [&](std::size_t s) {
        (*content)[s] = mix(mix(once ? once_digest : digest, write.tensor.index), s);
      });
    }
    return {};
  }

  std::optional<std::string> homes_and_budgets(const Plan& plan, Bytes device) const {
    std::vector<bool> at_home(trace_.tensors.size(), false), at_host_home = at_home;
    Bytes host{};
    for (std::size_t i = 0; i < trace_.carry.size(); ++i) {
      if (plan.begin[i].place == Place::nowhere) continue;
      const auto [end, start] = trace_.carry[i];
      const bool on_device = plan.begin[i].place == Place::device;
      const auto& there = on_device ? device_ : host_;
      if (end != start && there[end.index] && there[start.index]) return "two tensors in one home";
      (on_device ? at_home : at_host_home)[end.index] = true;
      (on_device ? at_home : at_host_home)[start.index] = true;
      (on_device ? device : host) += trace_[start].bytes;
    }
    for (std::size_t i = 0; i < trace_.tensors.size(); ++i) {
      if (device_[i] && !at_home[i]) device += trace_.tensors[i].bytes;
      if (host_[i] && !at_host_home[i]) host += trace_.tensors[i].bytes;
    }
    if (device > plan.budget.device) return "over the device budget";
    if (host > plan.budget.host) return "over the host budget";
    return {};
  }

  std::optional<std::string> compare_end(const Plan& plan, const std::vector<Content>& wanted) {
    if (auto why = homes_and_budgets(plan, {})) return why;  // a plan without steps
    std::vector<bool> device(trace_.tensors.size(), false), host = device;
    for (std::size_t i = 0; i < trace_.carry.size(); ++i) {
      const std::uint32_t end = trace_.carry[i].end.index;
      if (plan.begin[i].place == Place::nowhere) {
        const Role role = trace_[trace_.carry[i].start].role;
        if (role == Role::parameter || role == Role::buffer || role == Role::optimizer_state)
          return "state begins nowhere";
        continue;
      }
      const bool on_device = plan.begin[i].place == Place::device;
      (on_device ? device : host)[end] = true;
      const Copy& content = on_device ? device_[end] : host_[end];
      if (!content) return trace_.tensors[end].name + " is absent at the end";
      for (std::size_t s = 0; s < content->size(); ++s)
        if (defined_at_end_[end][s] && (*content)[s] != wanted[end][s])
          return trace_.tensors[end].name + " ends with another value";
    }
    for (std::size_t i = 0; i < trace_.tensors.size(); ++i)
      if (device_[i].has_value() != device[i] || host_[i].has_value() != host[i])
        return trace_.tensors[i].name + " is not where it was";
    return {};
  }

  const Trace& trace_;
  std::vector<Segments> segments_;                       // by tensor
  std::vector<std::vector<std::vector<bool>>> defined_;  // by op, read, segment
  std::vector<std::vector<bool>> defined_at_end_;        // by tensor, segment
  std::vector<Copy> device_, host_;                      // by tensor
  std::vector<std::uint32_t> runs_;                      // by op
  std::uint64_t garbage_ = 0;
};

}  // namespace superneurons
