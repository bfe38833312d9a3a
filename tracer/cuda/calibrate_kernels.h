// Kernels of the calibration. Apart from it because nvcc's host pass and our value types do not
// mix.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "ir/units.h"

namespace superneurons {

void launch_empty(cudaStream_t stream);

/// Spins for `cycles` of one multiprocessor; if `ns` (pinned or device memory), stores the time
/// that the kernel saw itself running.
void launch_spin(long long cycles, unsigned long long* ns, cudaStream_t stream);

/// Memory-bound work: y += x over `bytes` of floats.
void launch_stream(const std::byte* x, std::byte* y, Bytes bytes, cudaStream_t stream);

}  // namespace superneurons
