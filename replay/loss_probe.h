// Reads the loss of every training step, whatever the plan does with its tensor afterwards.
#pragma once

#include <memory>
#include <vector>

#include "replay/kernels.h"

namespace superneurons {

/// Where the losses go; must outlive the kernels and is complete after sync().
struct Losses {
  std::vector<float> values;  // per training step
};

/// Wraps `kernels`: behind each recorded run of the op that last writes the tensor named "loss"
/// (first float: the loss), its value is copied to `losses`, on the op's stream. `kernels`
/// themselves are given back if the trace has no such tensor.
std::unique_ptr<Kernels> probe_loss(std::unique_ptr<Kernels> kernels, const Trace& trace,
                                    int training_steps, bool on_cuda, Losses& losses);

}  // namespace superneurons
