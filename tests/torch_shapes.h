// Small traces in the shapes that PyTorch programs have: ATen kinds, module paths as layers, ops in
// place, views, accumulation over micro-batches, long chains with shared weights, residual streams.
#pragma once

#include <string>
#include <vector>

#include "ir/trace.h"

namespace superneurons {

struct TorchShape {
  std::string name;
  Trace trace;
};

/// "resnet", "micro_batches", "lstm", "transformer". Times are such that moving a tensor over a
/// link of 1 byte per ns takes about as long as an op.
std::vector<TorchShape> torch_shapes();

}  // namespace superneurons
