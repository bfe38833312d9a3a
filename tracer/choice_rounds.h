// Which choice every op takes in which training step, so that all choices are measured in few.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

/// Ops of one kind, shape and list of choices share what is measured: in one round each member of
/// such a group takes another choice, so that a network which repeats a shape a thousand times
/// needs no more rounds than the choices of its rarest shape. Groups that are done take the fastest
/// choice found.
class ChoiceRounds {
 public:
  explicit ChoiceRounds(const Trace& trace);

  /// Rounds that are still needed.
  std::size_t left() const;
  /// Choice of every op in the next round.
  std::vector<std::uint32_t> next();
  /// What the op's choice took in one training step of that round.
  void add(OpId op, std::uint32_t choice, Nanoseconds span);
  /// The choice does not work: it is dropped from the whole group.
  void drop(OpId op, std::uint32_t choice);
  /// Writes the median of each choice's group into the trace, erases dropped choices, and records
  /// the fastest deterministic choice of each op. Error device where an op has no deterministic
  /// choice left.
  Status store(Trace& trace) const;

 private:
  struct Group {
    std::vector<std::uint32_t> ops;
    std::vector<std::vector<Nanoseconds>> spans;  // by choice
    std::vector<bool> deterministic, dropped;
    std::uint32_t recorded = 0;
    std::size_t next = 0;  // first choice that no round has measured
    std::uint32_t fastest() const;
  };
  std::vector<Group> groups_;
  std::vector<std::uint32_t> group_of_;  // by op
};

}  // namespace superneurons
