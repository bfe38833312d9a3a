// Plan: what to do with memory in one training step, in issue order. Plain data; its text form is
// JSON Lines (traces/FORMAT.md, ir/plan_io.h).
//
// Residency rules, shared by checker, placement, driver and policies:
//   run op        allocates each tensor it writes that is absent on the device; grants the choice's
//                 workspace and scratch for `discard` while it runs. The first `run` of an op is
//                 its recorded run, later ones are reruns: they skip tensors in `op.once`.
//   free t        gives t's device range back.
//   offload t     copies t to the host (a host range is allocated if t has none); t stays on the
//   device. prefetch t    allocates t on the device, where it must be absent, and copies it from
//   the host. free_host t   gives t's host range back.
// Copies move whole tensors. All of it is a promise in plan order; the driver makes it true in
// time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/trace.h"

namespace superneurons {

enum class StepKind : std::uint8_t { run, free, offload, prefetch, free_host };
inline constexpr std::array<std::string_view, 5> kStepKindNames = {"run", "free", "offload",
                                                                   "prefetch", "free_host"};

struct PlanStep {
  StepKind kind = StepKind::run;
  std::uint32_t subject = 0;      // OpId::index for run, TensorId::index otherwise
  std::uint32_t choice = 0;       // run only; every run of an op takes the same choice
  std::vector<TensorId> discard;  // run only: outputs sent to scratch because nobody wants them

  OpId op() const { return {subject}; }
  TensorId tensor() const { return {subject}; }
  friend bool operator==(const PlanStep&, const PlanStep&) = default;
};

inline PlanStep run_step(OpId op, std::uint32_t choice, std::vector<TensorId> discard = {}) {
  return {StepKind::run, op.index, choice, std::move(discard)};
}
inline PlanStep tensor_step(StepKind kind, TensorId tensor) { return {kind, tensor.index, 0, {}}; }

/// Where a carried tensor lives between training steps. `device`: at a fixed home, a range that is
/// its own for the whole training step (free does not give a home back: choose `host` for that).
/// `host`: in the pinned pool, absent on the device. `nowhere`: its value is not needed.
enum class Place : std::uint8_t { device, host, nowhere };
inline constexpr std::array<std::string_view, 3> kPlaceNames = {"device", "host", "nowhere"};

/// One per carry of the trace, in the order of trace.carry. The plan's end must restore it: for
/// `device` the `end` tensor is on the device in the home of `start` with its last version; for
/// `host` the same on the host and absent from the device; for `nowhere` both are absent. Nothing
/// else is on the device or the host at the end. A carry with two tensors frees `start` before it
/// allocates `end`, which then takes over the home.
struct Begin {
  Place place = Place::device;
  friend bool operator==(const Begin&, const Begin&) = default;
};

struct Budget {
  Bytes device{};
  Bytes host{};
};

/// A sentence per decision, on request.
struct Reason {
  std::uint32_t step = 0;
  std::string text;
};

struct Plan {
  std::string trace_hash;  // trace_hash() of the trace it was made for
  std::string policy;      // with options, e.g. "liveness+offload:lookahead=3"
  std::string allocator = "first_fit";
  Budget budget;
  std::vector<Begin> begin;  // begin[i] belongs to trace.carry[i]
  std::vector<PlanStep> steps;
  std::vector<Reason> reasons;
};

/// Everything stays: all carries at home on the device, every op once in recorded order with its
/// recorded choice, all that is not carried freed at the end. What policies start from.
Plan keep_all_plan(const Trace& trace);

}  // namespace superneurons
