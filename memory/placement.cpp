#include "memory/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/files.h"
#include "memory/allocator.h"
#include "memory/assignment.h"
#include "memory/schedule.h"

namespace superneurons {
namespace {

Error unlawful(const Schedule& schedule) {
  return {ErrorCode::unlawful, "cannot be placed: " + schedule.fault, "", 0, std::nullopt};
}

Result<const AllocatorEntry*> allocator_of(const Plan& plan) {
  if (const AllocatorEntry* entry = find_allocator(plan.allocator)) return entry;
  std::string names;
  for (const AllocatorEntry& entry : allocators())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", entry.name);
  return Error{ErrorCode::bad_usage,
               fmt::format("no allocator '{}' (there are {})", plan.allocator, names), "", 0,
               std::nullopt};
}

/// The run that a step works for: itself, or the next one.
std::string op_at(const Trace& trace, const Plan& plan, std::uint32_t step) {
  for (; step < plan.steps.size(); ++step) {
    const PlanStep& at = plan.steps[step];
    if (at.kind == StepKind::run) return at.subject < trace.ops.size() ? trace[at.op()].name : "";
  }
  return "";
}

/// Who wants the range, for the message.
std::string asker(const Trace& trace, const Plan& plan, const Schedule& schedule,
                  std::uint32_t number) {
  const Request& request = schedule.requests[number];
  const std::string tensor = trace[request.allocation.tensor].name;
  if (number < schedule.homes) return fmt::format("home of {}", tensor);
  const PlanStep& step = plan.steps[request.step];
  if (step.kind == StepKind::run)
    return fmt::format("op {} (plan step {})", trace[step.op()].name, request.step);
  return fmt::format("{} of {} (plan step {})", kStepKindNames[static_cast<std::size_t>(step.kind)],
                     tensor, request.step);
}

/// Smallest arena for a schedule that has no fault. Where offsets depend on the arena it halves the
/// interval between one that is too small and one that is enough, so that one unit less than the
/// answer is refused.
Bytes smallest_arena_of(const Schedule& schedule, const AllocatorEntry& entry, Bytes guard) {
  Bytes enough = assign(schedule, entry, kEndless, kEndless, guard).device_peak;
  if (!entry.elastic) return enough;
  Bytes less = round_up(schedule.live_peak, kAllocationUnit) - kAllocationUnit;
  while (less + kAllocationUnit < enough) {
    const std::int64_t units = (enough - less).count / kAllocationUnit.count;
    const Bytes middle = less + kAllocationUnit * (units / 2);
    const Assignment tried = assign(schedule, entry, middle, kEndless, guard);
    if (tried.misfit) less = middle;
    else enough = tried.device_peak;
  }
  return enough;
}

Error does_not_fit(const Trace& trace, const Plan& plan, const Schedule& schedule,
                   const Assignment& assignment, const AllocatorEntry& entry, Bytes arena,
                   Bytes guard) {
  const Misfit& misfit = *assignment.misfit;
  const Bytes smallest_arena = assignment.planned_peak ? *assignment.planned_peak
                                                       : smallest_arena_of(schedule, entry, guard);
  const Request& request = schedule.requests[misfit.request];
  Shortage shortage;
  shortage.short_by = misfit.wanted - misfit.largest_hole;
  shortage.largest_hole = misfit.largest_hole;
  const bool on_host = request.allocation.space == Space::host;
  const Bytes room = on_host ? plan.budget.host : arena;
  // Of the host pool there is no floor to tell: with another device budget the same is short.
  if (!on_host) shortage.smallest_budget = smallest_arena;
  if (misfit.request >= schedule.homes) shortage.op = op_at(trace, plan, request.step);
  const std::string wanted = format_bytes(misfit.wanted);
  const std::string largest = format_bytes(misfit.largest_hole);
  std::string message = fmt::format("does not fit: {} needs {}{} and the largest hole is {} of {}",
                                    asker(trace, plan, schedule, misfit.request), wanted,
                                    on_host ? " of host memory" : "", largest, format_bytes(room));
  if (shortage.short_by <= 0_B && !on_host) {
    // Planned offsets that end beyond the arena, or a cached segment larger than the request.
    shortage.short_by = std::max(smallest_arena - room, kAllocationUnit);
    message += fmt::format(" (where {} cannot put it; an arena of {} is enough)", plan.allocator,
                           format_bytes(smallest_arena));
  } else if (wanted == largest) {
    message += fmt::format(" ({} short)", format_bytes(shortage.short_by));
  }
  return {ErrorCode::does_not_fit, std::move(message), "", 0, std::move(shortage)};
}

Placement placement_of(const Schedule& schedule, const Assignment& assignment) {
  Placement placement;
  for (std::uint32_t i = 0; i < schedule.requests.size(); ++i) {
    const Request& request = schedule.requests[i];
    Allocation allocation = request.allocation;
    const std::uint32_t at = request.home == kNoHome ? i : static_cast<std::uint32_t>(request.home);
    allocation.range.offset = assignment.ranges[at].offset;
    if (allocation.space == Space::device)
      placement.used_peak =
          std::max(placement.used_peak,
                   round_up(allocation.range.offset + allocation.range.bytes, kAllocationUnit));
    (i < schedule.homes ? placement.homes : placement.allocations).push_back(allocation);
  }
  placement.first = schedule.first;
  for (std::uint32_t& first : placement.first) first -= schedule.homes;
  placement.placed_peak = assignment.device_peak;
  placement.placed_peak_step = assignment.device_peak_step;
  placement.host_peak = assignment.host_peak;
  placement.live_peak = schedule.live_peak;
  placement.live_peak_step = schedule.live_peak_step;
  return placement;
}

}  // namespace

Result<Placement> place(const Trace& trace, const Plan& plan, Bytes arena,
                        const PlacementOptions& options) {
  const Result<const AllocatorEntry*> entry = allocator_of(plan);
  if (!entry) return entry.error();
  const Schedule requests = schedule(trace, plan);
  if (!requests.fault.empty()) return unlawful(requests);
  const Assignment assignment = assign(requests, **entry, arena, plan.budget.host, options.guard);
  if (!assignment.misfit) return placement_of(requests, assignment);
  return does_not_fit(trace, plan, requests, assignment, **entry, arena, options.guard);
}

Result<std::vector<Bytes>> workspace_rooms(const Trace& trace, const Plan& plan, Bytes arena) {
  const Result<const AllocatorEntry*> entry = allocator_of(plan);
  if (!entry) return entry.error();
  const Schedule requests = schedule(trace, plan);
  if (!requests.fault.empty()) return unlawful(requests);
  std::vector<Bytes> holes;
  const Assignment assignment = assign(requests, **entry, arena, plan.budget.host, 0_B, &holes);
  if (assignment.misfit)
    return does_not_fit(trace, plan, requests, assignment, **entry, arena, 0_B);
  std::vector<Bytes> rooms(plan.steps.size());
  for (std::uint32_t i = 0; i < rooms.size(); ++i) {
    if (plan.steps[i].kind != StepKind::run) continue;
    rooms[i] = holes[i];
    for (std::uint32_t r = requests.first[i]; r < requests.first[i + 1]; ++r) {
      const Allocation& allocation = requests.requests[r].allocation;
      if (allocation.use != Use::scratch) continue;
      // Wherever the workspace goes, what is left of the largest hole holds all scratch.
      rooms[i] -= round_up(allocation.range.bytes, kAllocationUnit);
    }
    rooms[i] = std::max(rooms[i], 0_B);
  }
  return rooms;
}

bool fits(const Trace& trace, const Plan& plan, Bytes arena) {
  const AllocatorEntry* entry = find_allocator(plan.allocator);
  if (entry == nullptr) return false;
  const Schedule requests = schedule(trace, plan, {.device = arena, .host = plan.budget.host});
  if (requests.over || !requests.fault.empty()) return false;
  return !assign(requests, *entry, arena, plan.budget.host, 0_B).misfit;
}

Result<Bytes> smallest_arena(const Trace& trace, const Plan& plan) {
  const Result<const AllocatorEntry*> entry = allocator_of(plan);
  if (!entry) return entry.error();
  const Schedule requests = schedule(trace, plan);
  if (!requests.fault.empty()) return unlawful(requests);
  return smallest_arena_of(requests, **entry, 0_B);
}

std::vector<Residency> residency(const Trace& trace, const Plan& plan) {
  return schedule(trace, plan, {.residency = true}).residency;
}

Bytes working_set(const Trace& trace, const Op& op, const Choice& choice) {
  std::vector<TensorId> tensors;
  for (const Access& read : op.reads) tensors.push_back(read.tensor);
  for (const Access& write : op.writes)
    if (std::find(choice.omits.begin(), choice.omits.end(), write.tensor) == choice.omits.end())
      tensors.push_back(write.tensor);
  std::sort(tensors.begin(), tensors.end());
  tensors.erase(std::unique(tensors.begin(), tensors.end()), tensors.end());
  Bytes bytes = choice.workspace;
  for (const TensorId tensor : tensors) bytes += trace[tensor].bytes;
  return bytes;
}

Bytes largest_working_set(const Trace& trace, OpId* op) {
  Bytes largest{};
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    std::optional<Bytes> least;
    for (const Choice& choice : trace.ops[i].choices) {
      const Bytes bytes = working_set(trace, trace.ops[i], choice);
      if (!least || bytes < *least) least = bytes;
    }
    if (!least || *least <= largest) continue;
    largest = *least;
    if (op != nullptr) *op = {i};
  }
  return largest;
}

}  // namespace superneurons
