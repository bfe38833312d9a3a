// Backend: the seam between the one driver and what executes: a clock (model), host memory, or
// CUDA.
#pragma once

#include <cstdint>
#include <span>

#include "ir/result.h"
#include "simulator/program.h"

namespace superneurons {

/// One command with its operands resolved.
struct Issue {
  const Command& command;
  std::span<const Bytes> reads;   // arena offsets, as op.reads; kAbsent if skipped
  std::span<const Bytes> writes;  // as op.writes
  int training_step = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// Called once before the first training step: make events, reset clocks.
  virtual Status prepare(const Trace& trace, const Program& program) = 0;
  virtual Status begin_training_step(int training_step) = 0;
  virtual Status wait(Stream stream, const Wait& wait) = 0;
  virtual Status run(const Issue& issue) = 0;   // CommandKind::run and ::poison
  virtual Status copy(const Issue& issue) = 0;  // ::copy_out and ::copy_in
  virtual Status record(Stream stream, std::uint32_t event) = 0;
  virtual Status end_training_step(int training_step) = 0;
  /// Waits for all streams. Nothing runs afterwards.
  virtual Status sync() = 0;
};

}  // namespace superneurons
