#include "memory/reserved.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "memory/allocator.h"
#include "memory/pytorch_caching.h"
#include "memory/schedule.h"

namespace superneurons {
namespace {

constexpr int kMostTrainingSteps = 12;

/// A home that the program makes when an op first uses it, before that event of the schedule.
struct LateHome {
  std::uint32_t event = 0;
  std::uint32_t request = 0;
};

class Program {
 public:
  Program(const Trace& trace, const Plan& plan, const Schedule& schedule, Bytes limit)
      : schedule_(schedule), cache_(kEndless, limit), offsets_(schedule.requests.size()) {
    find_late_homes(trace, plan);
  }

  /// Nothing if the limit is too tight.
  std::optional<CachePeaks> run() && {
    std::vector<bool> late(schedule_.homes);
    for (const LateHome& home : late_) late[home.request] = true;
    for (std::uint32_t home = 0; home < schedule_.homes; ++home)
      if (!late[home] && !take(home)) return {};
    CachePeaks peaks;
    while (peaks.training_steps < kMostTrainingSteps) {
      if (!training_step()) return {};
      ++peaks.training_steps;
      const Bytes before = std::exchange(peaks.reserved, cache_.reserved_peak());
      if (peaks.training_steps > 2 && peaks.reserved == before) break;
    }
    peaks.allocated = cache_.allocated_peak();
    return peaks;
  }

 private:
  /// By tensor the first plan step that runs an op with it; then the homes of optimizer state in
  /// the order of those.
  void find_late_homes(const Trace& trace, const Plan& plan) {
    const auto never = static_cast<std::uint32_t>(plan.steps.size());
    std::vector<std::uint32_t> first(trace.tensors.size(), never);
    for (std::uint32_t i = 0; i < never; ++i) {
      if (plan.steps[i].kind != StepKind::run) continue;
      const Op& op = trace[plan.steps[i].op()];
      for (const std::vector<Access>* accesses : {&op.reads, &op.writes})
        for (const Access& access : *accesses)
          first[access.tensor.index] = std::min(first[access.tensor.index], i);
    }
    for (std::uint32_t home = 0; home < schedule_.homes; ++home) {
      const TensorId tensor = schedule_.requests[home].allocation.tensor;
      if (trace[tensor].role != Role::optimizer_state) continue;
      const std::uint32_t step = first[tensor.index];
      late_.push_back({step == never ? static_cast<std::uint32_t>(schedule_.events.size())
                                     : schedule_.ready[step],
                       home});
    }
    std::stable_sort(late_.begin(), late_.end(),
                     [](const LateHome& a, const LateHome& b) { return a.event < b.event; });
  }

  bool take(std::uint32_t request) {
    const Allocation& allocation = schedule_.requests[request].allocation;
    if (allocation.space == Space::host) return true;
    const std::optional<Bytes> offset = cache_.allocate(allocation.range.bytes);
    if (offset) offsets_[request] = *offset;
    return offset.has_value();
  }

  bool training_step() {
    for (std::uint32_t i = schedule_.homes; i < schedule_.events.size(); ++i) {
      if (!take_late(i)) return false;
      const ScheduleEvent& event = schedule_.events[i];
      if (event.taken) {
        if (!take(event.request)) return false;
      } else if (schedule_.requests[event.request].allocation.space == Space::device) {
        cache_.free(offsets_[event.request]);
      }
    }
    return take_late(static_cast<std::uint32_t>(schedule_.events.size()));
  }

  bool take_late(std::uint32_t event) {
    for (; made_ < late_.size() && late_[made_].event <= event; ++made_)
      if (!take(late_[made_].request)) return false;
    return true;
  }

  const Schedule& schedule_;
  PyTorchCaching cache_;
  std::vector<Bytes> offsets_;  // by request
  std::vector<LateHome> late_;
  std::size_t made_ = 0;  // of them
};

}  // namespace

std::optional<CachePeaks> cache_peaks(const Trace& trace, const Plan& plan) {
  const AllocatorEntry* entry = find_allocator(plan.allocator);
  if (entry == nullptr || !entry->caches) return {};
  const Schedule requests = schedule(trace, plan);
  if (!requests.fault.empty()) return {};
  if (auto peaks = Program(trace, plan, requests, plan.budget.device).run()) return peaks;
  return Program(trace, plan, requests, kEndless).run();
}

}  // namespace superneurons
