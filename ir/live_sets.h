// Liveness analysis: which tensors hold a value that somebody still needs, before and after each
// step of a trace (SuperNeurons, PPoPP 2018, section 3.2.1 and figure 4).
//
// Worked example, the tail of figure 4: two branches begin at t0 and each sends a gradient back.
//
//     step              needs       makes   in          out       born   died
//     CONV9  backward   t0 t7       t8      t0 t6 t7    t0 t6 t8  t8     t7
//     CONV10 backward   t0 t6       t9      t0 t6 t8    t8 t9     t9     t0 t6
//     DATA11 backward   t8 t9       -       t8 t9       {}        -      t8 t9
//
// in(k) = out(k-1), and out(k) = in(k) + born(k) - died(k): the differences say all, and there are
// only as many as tensors. The paper writes down both sets for every layer and scans all later
// layers for each, O(N^2); here every value is followed once, from the op that makes it to the last
// op that needs it, which is linear in the trace. A set is only put together where somebody wants
// to print it (LiveSet).
//
// What lives is a *value*: between a last read and an overwrite that reads nothing a tensor is not
// live, though its storage may well be kept. Carried tensors that the next training step needs live
// throughout.
#pragma once

#include <array>
#include <set>
#include <span>
#include <vector>

#include "ir/dataflow.h"
#include "ir/trace.h"

namespace superneurons {

/// Ops [first, end), looked at as one step.
struct OpRange {
  OpId first;
  OpId end;
  friend bool operator==(const OpRange&, const OpRange&) = default;
};

/// Layer steps: the longest runs of ops of one layer in one phase, which is how the paper counts.
/// An op whose layer is not known is a step of its own.
std::vector<OpRange> layer_steps(const Trace& trace);
/// Every op on its own.
std::vector<OpRange> op_steps(const Trace& trace);

inline constexpr std::array<Role, kRoleNames.size()> kAllRoles = {Role::input,
                                                                  Role::parameter,
                                                                  Role::buffer,
                                                                  Role::gradient,
                                                                  Role::optimizer_state,
                                                                  Role::activation,
                                                                  Role::activation_gradient,
                                                                  Role::saved,
                                                                  Role::temporary};

struct LiveStep {
  OpRange ops;
  std::vector<TensorId> born;  // live after the step, but not before; ascending
  std::vector<TensorId> died;  // the other way round
  Bytes in{}, out{};           // of the live tensors before and after the step
  Bytes peak{};                // at the fullest op: live before it, and all that it writes
  std::uint32_t tensors = 0;   // how many those are
};

struct LiveSets {
  std::vector<TensorId> at_start;  // ascending
  std::vector<LiveStep> steps;
  std::uint32_t peak_step = 0;  // the first with the highest peak; 0 where there are no steps
};

/// Of the tensors of some roles. `steps` must cover the ops in order, without gaps (layer_steps,
/// op_steps). Linear in accesses, but for the sorting of each step's differences.
LiveSets live_sets(const Trace& trace, const Dataflow& flow, std::span<const OpRange> steps,
                   std::span<const Role> roles);

/// One set that walks along: from the set before step k to that after it, at the price of the
/// differences.
class LiveSet {
 public:
  explicit LiveSet(const LiveSets& sets) : live_(sets.at_start.begin(), sets.at_start.end()) {}
  void pass(const LiveStep& step);
  const std::set<TensorId>& tensors() const { return live_; }

 private:
  std::set<TensorId> live_;
};

}  // namespace superneurons
