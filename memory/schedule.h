// Schedule: which ranges a plan takes and gives back, in plan order, without their offsets. The one
// place that knows the residency rules of ir/plan.h; placement, peaks and residency follow from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memory/allocator.h"
#include "memory/placement.h"

namespace superneurons {

inline constexpr std::int32_t kNoHome = -1;

/// A range that a plan takes. `range.offset` of its allocation is not set here.
struct Request {
  Allocation allocation;
  std::uint32_t step = 0;       // plan step that takes it; 0 for homes
  std::int32_t home = kNoHome;  // request whose range it goes into instead of taking a new one
};

/// In plan order, a request is taken or given back. Those that go into a home, and the homes
/// themselves at the end, are not given back: a home is reserved for the whole training step.
struct ScheduleEvent {
  std::uint32_t request = 0;
  bool taken = true;  // false: given back
};

struct Schedule {
  std::vector<Request> requests;  // homes first, then in plan order
  std::uint32_t homes = 0;        // requests[0 .. homes) are homes
  std::vector<ScheduleEvent> events;
  std::vector<std::uint32_t> first;  // requests of step i: [first[i], first[i + 1])
  std::vector<std::uint32_t> ready;  // events before step i asks for workspace and scratch
  std::vector<Residency> residency;  // during each plan step, if asked for
  Bytes live_peak{};                 // most bytes asked for at one time, homes included
  std::uint32_t live_peak_step = 0;
  bool over = false;  // ended early: more is alive than the limits allow, wherever it is placed
  std::string fault;  // first thing that cannot be placed whatever the arena, "" if all can
};

struct ScheduleOptions {
  bool residency = false;   // fill Schedule::residency
  Bytes device = kEndless;  // bytes asked for beyond which there is no need to go on
  Bytes host = kEndless;
};

/// Walks the plan. A step that breaks the rules is skipped and the first such sets `fault`: the
/// checker says it better.
Schedule schedule(const Trace& trace, const Plan& plan, const ScheduleOptions& options = {});

}  // namespace superneurons
