// Versions of tensors, derived from a trace: who makes which value and who needs it.
//
// Worked example, `x` carried in, `y` updated in place by op 1:
//     op 0: reads x       writes y      needs x@0        makes y@1
//     op 1: reads y       writes y      needs y@1        makes y@2
//     op 2: reads y[0:4)  writes z[0:4) needs y@2 (z@0)  makes z@1
// A partial write keeps the other bytes, so it needs the old version too, unless that is version 0
// of a tensor not alive at the start: nobody wrote those bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/trace.h"

namespace superneurons {

/// Value number of a tensor: 0 is what it holds at the start (or nothing), each writing op makes
/// the next.
using Version = std::uint32_t;

struct Value {
  TensorId tensor;
  Version version = 0;
  friend auto operator<=>(const Value&, const Value&) = default;
};

struct OpFlow {
  std::span<const Value> needs;        // on the device before the first run; each tensor once
  std::span<const Value> makes;        // after the first run; each tensor once
  std::span<const Value> rerun_needs;  // the same without tensors in `once`
  std::span<const Value> rerun_makes;
  bool omits = false;  // some choice omits an output
};

struct TensorFlow {
  bool alive_at_start = false;   // is the `start` of a carry
  bool needed_at_start = false;  // some op needs version 0, or it is a parameter, buffer or
                                 // optimizer state: what must survive from step to step
  bool needed_at_end = false;    // it is the `end` of a carry whose `start` is needed_at_start
  Version last = 0;              // version after the recorded step
  std::vector<OpId> makers;      // makers[v - 1] writes version v
  std::vector<OpId> users;       // ops that read or write it, ascending, each once
};

/// Moves, but does not copy: the ops look into `values`.
struct Dataflow {
  std::vector<Value> values;
  std::vector<OpFlow> ops;
  std::vector<TensorFlow> tensors;

  Dataflow() = default;
  Dataflow(Dataflow&&) = default;
  Dataflow& operator=(Dataflow&&) = default;

  const OpFlow& operator[](OpId id) const { return ops[id.index]; }
  const TensorFlow& operator[](TensorId id) const { return tensors[id.index]; }
};

/// Linear in the number of accesses. The trace must have no fault (find_fault).
Dataflow analyze(const Trace& trace);

}  // namespace superneurons
