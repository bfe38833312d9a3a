#include "memory/footprints.h"

#include <algorithm>
#include <array>
#include <memory>

#include "memory/assignment.h"
#include "memory/heap.h"
#include "memory/schedule.h"

namespace superneurons {
namespace {

template <class Ids>
bool contains(const Ids& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// A tensor in one space. Homes are numbered over both.
struct Holding {
  Bytes offset{};
  std::int32_t start_home = kNoHome;  // the home it begins in
  std::int32_t end_home = kNoHome;    // the home it must end in
  std::int32_t sits = kNoHome;        // the home it is in
  bool here = false;
  std::int32_t home() const { return end_home != kNoHome ? end_home : start_home; }
};

/// Takes and gives back ranges as the plan does (memory/schedule.h has the rules). Stops at the
/// first range that finds no room, and at what cannot be placed at all.
class Walk {
 public:
  Walk(const Footprints& prints, const Plan& plan, const AllocatorEntry& entry, Bytes arena,
       Bytes host)
      : prints_(prints),
        trace_(prints.trace()),
        plan_(plan),
        memoryless_(entry.memoryless),
        arena_(entry.make(arena)),
        pool_(host, HoleOrder::lowest),
        tensors_(trace_.tensors.size()),
        ran_(trace_.ops.size(), false) {}

  /// Whether all found room. `rooms`: see workspace_rooms; then no run may be taken for granted.
  bool run(std::vector<Bytes>* rooms = nullptr) {
    if (!take_homes()) return false;
    for (const PlanStep& step : plan_.steps) {
      room_ = {};
      if (!(step.kind == StepKind::run ? run_op(step, rooms != nullptr) : move(step))) return false;
      if (rooms != nullptr) rooms->push_back(room_);
      ++at_;
    }
    return ends_at_home();
  }

  /// Where run() came to.
  Footprints::Stuck stuck() const { return {at_, space_}; }

  /// From now on high_water() counts what is lent as well.
  void measure_top() { measures_top_ = true; }
  /// End of the highest range taken.
  Bytes high_water() const { return arena_->high_water(); }

 private:
  Holding& on_device(std::uint32_t tensor) { return tensors_[tensor][0]; }
  Holding& on_host(std::uint32_t tensor) { return tensors_[tensor][1]; }

  bool take_homes() {
    if (plan_.begin.size() != trace_.carry.size()) return false;
    for (std::size_t i = 0; i < plan_.begin.size(); ++i) {
      const Place place = plan_.begin[i].place;
      if (place == Place::nowhere) continue;
      const auto [end, start] = trace_.carry[i];
      if (start.index >= tensors_.size() || end.index >= tensors_.size()) return false;
      const std::size_t space = place == Place::device ? 0 : 1;
      Holding& holding = tensors_[start.index][space];
      const Bytes bytes = prints_.bytes(start.index);
      if (bytes <= 0_B || prints_.bytes(end.index) != bytes || holding.here) return false;
      if (!allocator(space).allocate(bytes)) return false;
      const auto home = static_cast<std::int32_t>(occupied_.size());
      occupied_.push_back(true);
      holding.here = true;
      holding.sits = holding.start_home = home;
      tensors_[end.index][space].end_home = home;
    }
    return true;
  }

  Allocator& allocator(std::size_t space) { return space == 0 ? *arena_ : pool_; }

  bool take(std::uint32_t tensor, std::size_t space) {
    Holding& holding = tensors_[tensor][space];
    const Bytes bytes = prints_.bytes(tensor);
    if (bytes <= 0_B) return false;
    space_ = space == 0 ? Space::device : Space::host;
    holding.sits = holding.home();
    if (holding.sits != kNoHome) {
      if (occupied_[holding.sits]) return false;
      occupied_[holding.sits] = true;
    } else {
      const std::optional<Bytes> offset = allocator(space).allocate(bytes);
      if (!offset) return false;
      holding.offset = *offset;
    }
    return holding.here = true;
  }

  bool give_back(std::uint32_t tensor, std::size_t space) {
    Holding& holding = tensors_[tensor][space];
    if (!holding.here) return false;
    holding.here = false;
    if (holding.sits != kNoHome) occupied_[holding.sits] = false;
    else allocator(space).free(holding.offset);
    return true;
  }

  bool move(const PlanStep& step) {
    const std::uint32_t tensor = step.subject;
    if (tensor >= tensors_.size()) return false;
    switch (step.kind) {
      case StepKind::run:
        return true;
      case StepKind::free:
        return give_back(tensor, 0);
      case StepKind::offload:
        return on_device(tensor).here && (on_host(tensor).here || take(tensor, 1));
      case StepKind::prefetch:
        return !on_device(tensor).here && on_host(tensor).here && take(tensor, 0);
      case StepKind::free_host:
        return give_back(tensor, 1);
    }
    return false;
  }

  /// What one run takes: outputs that are absent, in the order of op.writes, then workspace, then
  /// scratch.
  bool run_op(const PlanStep& step, bool measure) {
    if (step.subject >= ran_.size()) return false;
    const std::span<const Footprints::Way> ways = prints_.ways(step.subject);
    if (step.choice >= ways.size()) return false;
    space_ = Space::device;
    const Footprints::Way& way = ways[step.choice];
    const bool rerun = ran_[step.subject];
    ran_[step.subject] = true;
    lent_.clear();
    if (way.workspace > 0_B) lent_.push_back(way.workspace);
    const std::size_t workspaces = lent_.size();
    for (const Footprints::Written& written : prints_.writes(step.subject)) {
      if (rerun && written.once) continue;
      const TensorId tensor{written.tensor};
      if (tensor.index >= tensors_.size()) return false;
      if (way.omits && contains(trace_[step.op()].choices[step.choice].omits, tensor)) continue;
      if (!step.discard.empty() && contains(step.discard, tensor)) {
        const Bytes bytes = prints_.bytes(tensor.index);
        if (bytes <= 0_B) return false;
        lent_.push_back(bytes);
      } else if (!on_device(tensor.index).here && !take(tensor.index, 0)) {
        return false;
      }
    }
    if (measure) measure_room(workspaces);
    return lent_.empty() || lend();
  }

  /// The largest hole, less what scratch takes of it.
  void measure_room(std::size_t workspaces) {
    room_ = arena_->largest_hole();
    for (std::size_t i = workspaces; i < lent_.size(); ++i)
      room_ -= round_up(lent_[i], kAllocationUnit);
    room_ = std::max(room_, 0_B);
  }

  /// Ranges for the duration of a step.
  bool lend() {
    // One range, taken and given back, leaves such an arena as it was.
    if (lent_.size() == 1 && memoryless_ && !measures_top_)
      return arena_->rounded(lent_[0]) <= arena_->largest_hole();
    offsets_.clear();
    for (const Bytes bytes : lent_) {
      const std::optional<Bytes> offset = arena_->allocate(bytes);
      if (!offset) return false;
      offsets_.push_back(*offset);
    }
    for (const Bytes offset : offsets_) arena_->free(offset);
    return true;
  }

  bool ends_at_home() const {
    for (const auto& spaces : tensors_)
      for (const Holding& holding : spaces)
        if (holding.here && holding.end_home != kNoHome && holding.sits != holding.end_home)
          return false;
    return true;
  }

  const Footprints& prints_;
  const Trace& trace_;
  const Plan& plan_;
  bool memoryless_;
  bool measures_top_ = false;
  std::unique_ptr<Allocator> arena_;
  Heap pool_;
  std::vector<std::array<Holding, 2>> tensors_;  // device, host
  std::vector<bool> ran_;                        // by op
  std::vector<bool> occupied_;                   // by home
  std::vector<Bytes> lent_, offsets_;            // by the current run
  Bytes room_{};                                 // of the current step
  std::uint32_t at_ = 0;                         // the current step
  Space space_ = Space::device;                  // in which it took a range last
};

/// The allocator of the plan if its ranges can be found one after another.
const AllocatorEntry* online(const Plan& plan) {
  const AllocatorEntry* entry = find_allocator(plan.allocator);
  return entry == nullptr || entry->offline ? nullptr : entry;
}

}  // namespace

Footprints::Footprints(const Trace& trace) : trace_(trace) {
  bytes_.reserve(trace.tensors.size());
  for (const Tensor& tensor : trace.tensors) bytes_.push_back(tensor.bytes);
  first_write_.reserve(trace.ops.size() + 1);
  first_way_.reserve(trace.ops.size() + 1);
  for (const Op& op : trace.ops) {
    first_write_.push_back(static_cast<std::uint32_t>(writes_.size()));
    first_way_.push_back(static_cast<std::uint32_t>(ways_.size()));
    const auto first = static_cast<std::ptrdiff_t>(writes_.size());
    for (const Access& write : op.writes) {
      const auto same = [&](const Written& other) { return other.tensor == write.tensor.index; };
      if (std::none_of(writes_.begin() + first, writes_.end(), same))
        writes_.push_back({write.tensor.index, contains(op.once, write.tensor)});
    }
    for (const Choice& choice : op.choices)
      ways_.push_back({choice.workspace, choice.ns, !choice.omits.empty()});
  }
  first_write_.push_back(static_cast<std::uint32_t>(writes_.size()));
  first_way_.push_back(static_cast<std::uint32_t>(ways_.size()));
}

bool Footprints::fits(const Plan& plan, Bytes arena) const {
  const AllocatorEntry* entry = online(plan);
  if (entry == nullptr) return superneurons::fits(trace_, plan, arena);
  return Walk(*this, plan, *entry, arena, plan.budget.host).run();
}

std::optional<Footprints::Stuck> Footprints::first_stuck(const Plan& plan, Bytes arena) const {
  if (const AllocatorEntry* entry = online(plan)) {
    Walk walk(*this, plan, *entry, arena, plan.budget.host);
    if (walk.run()) return {};
    return walk.stuck();
  }
  const AllocatorEntry* entry = find_allocator(plan.allocator);
  if (entry == nullptr) return Stuck{};
  const Schedule wanted = schedule(trace_, plan);
  const Assignment found = assign(wanted, *entry, arena, plan.budget.host, 0_B);
  if (!found.misfit) return wanted.fault.empty() ? std::nullopt : std::optional(Stuck{});
  const Request& request = wanted.requests[found.misfit->request];
  return Stuck{request.step, request.allocation.space};
}

std::optional<Bytes> Footprints::smallest_arena(const Plan& plan) const {
  const AllocatorEntry* entry = online(plan);
  if (entry == nullptr || entry->elastic) {
    const Result<Bytes> arena = superneurons::smallest_arena(trace_, plan);
    return arena ? std::optional(*arena) : std::nullopt;
  }
  Walk walk(*this, plan, *entry, kEndless, kEndless);
  walk.measure_top();
  if (!walk.run()) return std::nullopt;
  return walk.high_water();
}

std::optional<std::vector<Bytes>> Footprints::workspace_rooms(const Plan& plan, Bytes arena) const {
  const AllocatorEntry* entry = online(plan);
  if (entry == nullptr) {
    Result<std::vector<Bytes>> rooms = superneurons::workspace_rooms(trace_, plan, arena);
    return rooms ? std::optional(*std::move(rooms)) : std::nullopt;
  }
  std::vector<Bytes> rooms;
  rooms.reserve(plan.steps.size());
  if (!Walk(*this, plan, *entry, arena, plan.budget.host).run(&rooms)) return std::nullopt;
  return rooms;
}

}  // namespace superneurons
