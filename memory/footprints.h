// What the ops of a trace take, flattened: for searches that ask thousands of times whether a plan
// fits. Answers are those of memory/placement.h, without a schedule and in one pass that ends at
// the first range that finds no room.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ir/plan.h"
#include "memory/allocator.h"
#include "memory/placement.h"

namespace superneurons {

/// Of one trace, which must outlive it.
class Footprints {
 public:
  explicit Footprints(const Trace& trace);

  /// fits(trace, plan, arena).
  bool fits(const Plan& plan, Bytes arena) const;
  /// The first plan step that finds no room, and in which space (step 0 for homes, the number of
  /// steps for what does not end at home); nothing if the plan fits.
  struct Stuck {
    std::uint32_t step = 0;
    Space space = Space::device;
  };
  std::optional<Stuck> first_stuck(const Plan& plan, Bytes arena) const;
  /// smallest_arena(trace, plan); nothing where that is an Error.
  std::optional<Bytes> smallest_arena(const Plan& plan) const;
  /// workspace_rooms(trace, plan, arena); nothing where that is an Error.
  std::optional<std::vector<Bytes>> workspace_rooms(const Plan& plan, Bytes arena) const;

  // ---- for the walk

  struct Written {
    std::uint32_t tensor = 0;
    bool once = false;  // on the first run only
  };
  struct Way {  // a choice
    Bytes workspace{};
    Nanoseconds ns{};
    bool omits = false;  // some output: look it up in the trace
  };
  const Trace& trace() const { return trace_; }
  Bytes bytes(std::uint32_t tensor) const { return bytes_[tensor]; }
  /// Each tensor once, in the order of op.writes.
  std::span<const Written> writes(std::uint32_t op) const {
    return std::span(writes_).subspan(first_write_[op], first_write_[op + 1] - first_write_[op]);
  }
  std::span<const Way> ways(std::uint32_t op) const {
    return std::span(ways_).subspan(first_way_[op], first_way_[op + 1] - first_way_[op]);
  }

 private:
  const Trace& trace_;
  std::vector<Bytes> bytes_;  // by tensor
  std::vector<Written> writes_;
  std::vector<Way> ways_;
  std::vector<std::uint32_t> first_write_, first_way_;  // by op, one more for the end
};

}  // namespace superneurons
