// What a PyTorch program that did the allocations of a plan would reserve of its device: segments
// that its caching allocator (memory/pytorch_caching.h) holds, used or not.
#pragma once

#include <optional>

#include "ir/plan.h"

namespace superneurons {

struct CachePeaks {
  Bytes allocated{};       // torch.cuda.max_memory_allocated()
  Bytes reserved{};        // torch.cuda.max_memory_reserved()
  int training_steps = 0;  // after which it reserved no more
};

/// Peaks of the program once it has settled: training steps follow each other on one allocator, as
/// what one left cached decides where the next one's blocks go. Carried tensors are there first,
/// but for optimizer state: PyTorch makes it when the first training step updates, amid the blocks
/// that forward and backward left. plan.budget.device limits the segments; where not even giving
/// back all free ones helps, the program would run out of memory, and the peaks are those without a
/// limit, beyond the budget. Nothing if the plan uses another allocator or cannot be placed at all.
std::optional<CachePeaks> cache_peaks(const Trace& trace, const Plan& plan);

}  // namespace superneurons
