// What input tensors hold, training step by training step. Without a feed they keep their first
// content (replay/initial.h): one fixed batch.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "ir/trace.h"
#include "memory/placement.h"

namespace superneurons {

/// Inputs of a trace that get new contents before each training step.
struct InputSource {
  std::vector<TensorId> tensors;  // carried; no op writes them
  /// Fills `to`, all bytes of tensors[which], with its content in that training step. Pure: the
  /// same step, the same bytes.
  std::function<void(int training_step, std::size_t which, std::span<std::byte> to)> write;
};

/// New content for a range that a carried tensor occupies between training steps.
struct Fed {
  Space space = Space::device;
  Range range;
  std::vector<std::byte> content;
};

}  // namespace superneurons
