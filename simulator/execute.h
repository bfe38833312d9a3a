// The driver: the only interpreter of plans. Simulation and replay differ in the backend alone.
#pragma once

#include <atomic>
#include <functional>

#include "simulator/backend.h"

namespace superneurons {

struct ExecuteOptions {
  int training_steps = 1;
  bool prepared = false;                    // prepare() was called for this very program
  const std::atomic<bool>* stop = nullptr;  // checked between training steps and every 256 commands
  /// Called once a training step has begun, before its first command; may be empty.
  std::function<Status(int training_step)> begun;
};

/// Issues the program `training_steps` times and syncs. On an Error everything issued has been
/// synced.
Status execute(const Trace& trace, const Program& program, Backend& backend,
               const ExecuteOptions& options = {});

}  // namespace superneurons
