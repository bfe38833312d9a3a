#include "policies/overlap.h"

#include <algorithm>
#include <optional>

#include "memory/allocator.h"
#include "memory/footprints.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

constexpr std::uint32_t kNever = 0xffffffff;
constexpr std::uint32_t kLayersAhead = 3;  // the look-ahead of the paper's figure 10b
constexpr std::int64_t kWork = 500'000;    // plan steps that may be placed again
constexpr int kMostTries = 32;
constexpr std::int64_t kHoles = 32;  // the part of the arena that is left to them
constexpr int kPushes = 2;           // of one copy by single steps, then by ever more
constexpr std::uint32_t kNear = 16;  // steps between misfits that count as one

/// A plan step that goes to another place; `to` is a place of the plan (before that step).
struct Shift {
  std::uint32_t step = 0;
  std::uint32_t to = 0;
};

/// Bytes free in one space, by plan step.
class Room {
 public:
  Room() = default;
  explicit Room(std::size_t steps) : during_(steps), after_(steps) {}
  void set(std::uint32_t step, Bytes during, Bytes after) {
    during_[step] = during;
    after_[step] = after;
  }
  /// The first place in [from, to] from which `size` bytes fit until step `to`.
  std::uint32_t earliest(std::uint32_t from, std::uint32_t to, Bytes size) const {
    std::uint32_t place = to;
    for (; place > from; --place) {
      if (during_[place - 1] < size) break;
      if (place >= 2 && after_[place - 2] < size) break;
    }
    return place;
  }
  /// The last place in [from, to] until which `size` bytes fit from step `from`.
  std::uint32_t latest(std::uint32_t from, std::uint32_t to, Bytes size) const {
    std::uint32_t place = from;
    while (place < to && during_[place] >= size) ++place;
    return place;
  }
  void take(std::uint32_t from, std::uint32_t to, Bytes size) {
    for (std::uint32_t step = from; step < to; ++step) {
      during_[step] -= size;
      after_[step] -= size;
    }
  }

 private:
  std::vector<Bytes> during_, after_;
};

class Overlapper {
 public:
  Overlapper(const PolicyContext& context, const Plan& plan)
      : context_(context),
        plan_(plan),
        clock_(clock_of(context, plan)),
        device_(plan.steps.size()),
        host_(plan.steps.size()) {
    find_shared_homes();
    find_room();
    find_bounds();
  }

  Plan run(OverlapOptions options) {
    shift_offloads();
    if (options.prefetches) shift_prefetches();
    shift_frees();
    if (std::optional<Plan> shifted = give_way(options.patience)) return *std::move(shifted);
    const std::int64_t tries = std::clamp<std::int64_t>(
        kWork / static_cast<std::int64_t>(plan_.steps.size()), 4, kMostTries);
    for (std::int64_t left = tries; left >= 0 && !stopped(context_); --left) {
      Plan shifted = apply();
      const std::optional<Misplaced> misplaced = first_misfit(shifted);
      if (!misplaced) return shifted;
      // The last try is without all that the device may have no room for.
      clear_around(*misplaced, left <= 1 ? whole() : window(misplaced->run));
    }
    return plan_;
  }

 private:
  Bytes bytes(std::uint32_t step) const {
    return round_up(context_.trace[plan_.steps[step].tensor()].bytes, kAllocationUnit);
  }
  Nanoseconds time(const TransferCurve& curve, std::uint32_t step) const {
    const Nanoseconds copy = transfer_time(curve, context_.trace[plan_.steps[step].tensor()].bytes);
    return std::min(copy, kLatest);
  }

  /// Tensors that share a home come and go there in the order of the plan.
  void find_shared_homes() {
    shared_.assign(context_.trace.tensors.size(), false);
    for (const Carry& carry : context_.trace.carry)
      if (carry.start != carry.end) shared_[carry.start.index] = shared_[carry.end.index] = true;
  }

  bool shifts(std::uint32_t step, StepKind kind) const {
    return plan_.steps[step].kind == kind && !shared_[plan_.steps[step].subject];
  }

  void find_room() {
    const std::vector<Residency> rows = residency(context_.trace, plan_);
    std::vector<bool> on_host(context_.trace.tensors.size(), false);
    Bytes host = context_.budget.host;
    for (std::size_t i = 0; i < plan_.begin.size(); ++i) {
      if (plan_.begin[i].place != Place::host) continue;
      const TensorId tensor = context_.trace.carry[i].start;
      // Its home is its own throughout: steps that come and go there take nothing.
      host -= round_up(context_.trace[tensor].bytes, kAllocationUnit);
      home_.resize(context_.trace.tensors.size(), false);
      home_[tensor.index] = home_[context_.trace.carry[i].end.index] = true;
    }
    home_.resize(context_.trace.tensors.size(), false);
    // Holes take some of what the sums leave.
    const Bytes room{context_.budget.device.count - context_.budget.device.count / kHoles};
    for (std::uint32_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      device_.set(i, room - rows[i].total, room - rows[i].total + rows[i].workspace);
      if (step.kind != StepKind::run && !home_[step.subject]) {
        const bool comes = step.kind == StepKind::offload;
        if (comes && !on_host[step.subject]) host -= bytes(i);
        if (step.kind == StepKind::free_host) host += bytes(i);
        if (comes || step.kind == StepKind::free_host) on_host[step.subject] = comes;
      }
      host_.set(i, host, host);
    }
  }

  /// For every step that moves a tensor, the places between which it may go: behind the touch
  /// before and ahead of the touch after.
  void find_bounds() {
    after_.assign(plan_.steps.size(), 0);
    before_.assign(plan_.steps.size(), static_cast<std::uint32_t>(plan_.steps.size()));
    behind_offload_.assign(plan_.steps.size(), false);
    const Touches touches(context_, plan_);
    for (std::uint32_t t = 0; t < context_.trace.tensors.size(); ++t) {
      std::uint32_t changed = 0;  // behind the last step that wrote, brought or took away a copy
      std::uint32_t previous = kNever;
      bool copied = false;  // out, since it was last written
      for (const Touch& touch : touches[{t}]) {
        after_[touch.step] =
            touch.kind == StepKind::offload ? changed : (previous == kNever ? 0 : previous + 1);
        if (previous != kNever) before_[previous] = touch.step;
        behind_offload_[touch.step] = touch.kind == StepKind::free && copied;
        if (touch.makes) copied = false;
        if (touch.kind == StepKind::offload) copied = true;
        if (touch.makes || touch.kind != StepKind::run) changed = touch.step + 1;
        previous = touch.step;
      }
    }
  }

  /// Out as soon as there is something to copy, if the host has room.
  void shift_offloads() {
    std::uint32_t last = 0;  // they keep their order
    for (std::uint32_t i = 0; i < plan_.steps.size(); ++i) {
      if (!shifts(i, StepKind::offload)) continue;
      std::uint32_t to = std::max(after_[i], last);
      if (!home_[plan_.steps[i].subject]) {
        to = host_.earliest(std::min(to, i), i, bytes(i));
        host_.take(to, i, bytes(i));
      }
      to = std::min(to, i);
      last = to;
      shifts_.push_back({i, to});
      const Nanoseconds start = std::max(out_, clock_[to]);
      out_ = later(start, time(context_.profile.offload, i));
      copies_out_.push_back(out_);
    }
  }

  std::vector<std::uint32_t> wanted_places(const std::vector<std::uint32_t>& prefetches) const {
    std::vector<std::uint32_t> places(prefetches.size());
    const bool timed = clock_.back() > 0_ns;
    const std::vector<std::uint32_t> layers =
        timed ? std::vector<std::uint32_t>() : layer_step_starts(context_.trace, plan_);
    Nanoseconds next = clock_.back();
    for (std::size_t i = prefetches.size(); i-- > 0;) {
      const std::uint32_t step = prefetches[i];
      if (!timed) {
        places[i] = layers.empty() ? step : std::min(step, back(layers, step, kLayersAhead));
        continue;
      }
      // Half as much again: copies slow one another and the ops.
      const Nanoseconds copy = time(context_.profile.prefetch, step);
      next = std::max(std::min(next, clock_[step]) - copy - Nanoseconds{copy.count / 2},
                      0_ns - kLatest);
      const auto at = std::upper_bound(clock_.begin(), clock_.begin() + step + 1, next);
      places[i] = at == clock_.begin() ? 0 : static_cast<std::uint32_t>(at - clock_.begin() - 1);
    }
    return places;
  }

  void shift_prefetches() {
    std::vector<std::uint32_t> prefetches;
    for (std::uint32_t i = 0; i < plan_.steps.size(); ++i)
      if (shifts(i, StepKind::prefetch)) prefetches.push_back(i);
    const std::vector<std::uint32_t> wanted = wanted_places(prefetches);
    std::uint32_t last = 0;  // they keep their order
    for (std::size_t i = 0; i < prefetches.size(); ++i) {
      const std::uint32_t step = prefetches[i];
      const std::uint32_t from = std::max({wanted[i], after_[step], last});
      last = std::min(from, step);
      if (from < step) {
        last = device_.earliest(from, step, bytes(step));
        device_.take(last, step, bytes(step));
      }
      shifts_.push_back({step, last});
    }
  }

  /// A free waits for the copy out before it.
  void shift_frees() {
    std::vector<Nanoseconds> done(context_.trace.tensors.size());
    std::vector<std::uint32_t> limit(plan_.steps.size(), kNever);  // by step of a prefetch
    for (const Shift& shift : shifts_) limit[shift.step] = shift.to;
    std::size_t next = 0;
    for (std::uint32_t i = 0; i < plan_.steps.size(); ++i) {
      const PlanStep& step = plan_.steps[i];
      if (shifts(i, StepKind::offload)) done[step.subject] = copies_out_[next++];
      if (!shifts(i, StepKind::free) || !behind_offload_[i] || done[step.subject] <= clock_[i])
        continue;
      const auto at = std::lower_bound(clock_.begin() + i, clock_.end() - 1, done[step.subject]);
      auto to = static_cast<std::uint32_t>(at - clock_.begin());
      const std::uint32_t after = before_[i];
      to =
          std::min(to, after < plan_.steps.size() && limit[after] != kNever ? limit[after] : after);
      if (to <= i) continue;
      to = device_.latest(i, to, bytes(i));
      device_.take(i, to, bytes(i));
      shifts_.push_back({i, to});
    }
  }

  Plan apply() const {
    Edits edits(plan_.steps.size());
    std::vector<const Reason*> why(plan_.steps.size(), nullptr);
    for (const Reason& reason : plan_.reasons)
      if (reason.step < why.size()) why[reason.step] = &reason;
    for (const Shift& shift : shifts_) {
      if (shift.to == shift.step) continue;
      const PlanStep& step = plan_.steps[shift.step];
      const Rank rank = step.kind == StepKind::offload ? Rank::offload
                        : step.kind == StepKind::free  ? Rank::free
                                                       : Rank::prefetch;
      edits.remove(shift.step);
      edits.insert(shift.to, rank, step, why[shift.step] ? why[shift.step]->text : "");
    }
    return std::move(edits).apply(plan_);
  }

  /// Where a shifted plan cannot be placed.
  struct Misplaced {
    std::uint32_t run = 0;  // of the old plan; it or a step just before it
    Space space = Space::device;
  };

  std::optional<Misplaced> first_misfit(const Plan& shifted) const {
    if (find_allocator(shifted.allocator) == nullptr) return {};
    const std::optional<Footprints::Stuck> stuck =
        context_.footprints
            ? context_.footprints->first_stuck(shifted, context_.budget.device)
            : Footprints(context_.trace).first_stuck(shifted, context_.budget.device);
    if (!stuck) return {};
    std::uint32_t runs = 0;
    for (std::uint32_t i = 0; i < stuck->step && i < shifted.steps.size(); ++i)
      runs += shifted.steps[i].kind == StepKind::run ? 1 : 0;
    Misplaced misplaced{whole(), stuck->space};
    for (std::uint32_t i = 0; i < whole(); ++i)
      if (plan_.steps[i].kind == StepKind::run && runs-- == 0) {
        misplaced.run = i;
        break;
      }
    return misplaced;
  }

  std::uint32_t whole() const { return static_cast<std::uint32_t>(plan_.steps.size()); }

  /// One copy after another gives way where there is no room, until all fit.
  std::optional<Plan> give_way(int patience) {
    if (patience <= 0) return {};
    std::vector<int> pushes(shifts_.size(), 0);
    while (!stopped(context_)) {
      Plan shifted = apply();
      const std::optional<Misplaced> misplaced = first_misfit(shifted);
      if (!misplaced) return shifted;
      if (patience-- == 0) return {};
      Shift* const last = last_needed(*misplaced);
      if (last == nullptr) return {};
      // Farther each time that it is in the way.
      int& pushed = pushes[static_cast<std::size_t>(last - shifts_.data())];
      const std::uint32_t width = 1U << std::min(pushed++ / kPushes, 30);
      const std::uint32_t behind = misplaced->run + width;
      const std::uint32_t ahead = misplaced->run + 1 - std::min(misplaced->run + 1, width);
      if (std::max(last->step, last->to) <= misplaced->run) last->to = last->step;
      else if (last->to < last->step) last->to = std::min(behind, last->step);
      else last->to = std::max(ahead, last->step);
    }
    return {};
  }

  /// Of what is early or late across a run, what is needed last; if there is nothing, what was so
  /// most recently, and left other holes than it found.
  Shift* last_needed(const Misplaced& misplaced) {
    const std::uint32_t run = misplaced.run;
    const auto need = [](const Shift& of) { return of.to < of.step ? of.step : 0; };
    const auto end = [](const Shift& of) { return std::max(of.step, of.to); };
    Shift *across = nullptr, *before = nullptr;
    for (Shift& shift : shifts_) {
      const bool copy_out = plan_.steps[shift.step].kind == StepKind::offload;
      if (copy_out != (misplaced.space == Space::host) || shift.to == shift.step) continue;
      if (std::min(shift.to, shift.step) > run) continue;
      Shift*& best = run < end(shift) ? across : before;
      if (best == nullptr ||
          (&best == &across ? need(shift) > need(*best) : end(shift) > end(*best)))
        best = &shift;
    }
    return across != nullptr ? across : before;
  }

  /// How far around a run to clear: farther each time that it misfits there again.
  std::uint32_t window(std::uint32_t run) {
    std::uint32_t again = 0;
    for (const std::uint32_t before : misfits_)
      again += before + kNear >= run && before <= run + kNear ? 1 : 0;
    misfits_.push_back(run);
    // And everywhere, little by little, so that it comes to an end.
    again += static_cast<std::uint32_t>(misfits_.size()) / 3;
    return (1U << std::min(again, 30U)) - 1;
  }

  /// Nothing is early or late across these runs any more.
  void clear_around(const Misplaced& misplaced, std::uint32_t width) {
    const std::uint32_t low = misplaced.run > width ? misplaced.run - width : 0;
    const std::uint32_t high =
        std::min(misplaced.run, whole() - std::min(width, whole())) + width + 1;
    for (Shift& shift : shifts_) {
      const bool copy_out = plan_.steps[shift.step].kind == StepKind::offload;
      if (copy_out != (misplaced.space == Space::host)) continue;
      if (shift.to < shift.step && shift.to < high && shift.step > low)
        shift.to = std::min(shift.step, high);
      else if (shift.to > shift.step && shift.to > low && shift.step < high)
        shift.to = std::max(shift.step, low);
    }
  }

  const PolicyContext& context_;
  const Plan& plan_;
  std::vector<Nanoseconds> clock_;
  Room device_, host_;
  std::vector<bool> home_;             // by tensor: it has a home on the host
  std::vector<bool> shared_;           // by tensor: with another, and does not shift
  std::vector<std::uint32_t> after_;   // by step: the first place it may go to
  std::vector<std::uint32_t> before_;  // by step: the next touch of its tensor
  std::vector<bool> behind_offload_;   // by step: a free whose copy out may still run
  std::vector<Shift> shifts_;
  std::vector<std::uint32_t> misfits_;   // runs at which a try could not be placed
  std::vector<Nanoseconds> copies_out_;  // when each is done, in plan order
  Nanoseconds out_{};                    // when the stream of copies out is done
};

}  // namespace

Plan overlap(const PolicyContext& context, const Plan& plan, OverlapOptions options) {
  const bool copies = std::any_of(plan.steps.begin(), plan.steps.end(), [](const PlanStep& step) {
    return step.kind == StepKind::offload || step.kind == StepKind::prefetch;
  });
  if (!copies || !fits(context, plan)) return plan;
  return Overlapper(context, plan).run(options);
}

}  // namespace superneurons
