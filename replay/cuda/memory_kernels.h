// Kernels of the CUDA backend itself: first contents, checksums, guards, delays. All are
// asynchronous on `stream` and return the launch's status.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "replay/initial.h"

namespace superneurons {

/// Fills a range with initial_word(init, scale, key, index).
cudaError_t launch_initialise(std::byte* at, std::int64_t bytes, Init init, float scale,
                              std::uint64_t key, cudaStream_t stream);

/// Adds the checksum of a range to *sum (on the device).
cudaError_t launch_checksum(const std::byte* at, std::int64_t bytes, unsigned long long* sum,
                            cudaStream_t stream);

/// Writes the guard pattern into the `guard` bytes before `at` and after `at + bytes`.
cudaError_t launch_guard_fill(std::byte* at, std::int64_t bytes, std::int64_t guard,
                              cudaStream_t stream);

/// Sets *first to `code` (> 0) if a guard byte of the range was overwritten and *first is 0.
cudaError_t launch_guard_check(const std::byte* at, std::int64_t bytes, std::int64_t guard,
                               unsigned long long code, unsigned long long* first,
                               cudaStream_t stream);

/// Stores one float to page-locked host memory (its device address): a store passes the copies that
/// wait for the copy engine, where cudaMemcpyAsync would queue behind them.
cudaError_t launch_store(float* to, const float* from, cudaStream_t stream);

/// Keeps one multiprocessor's thread busy for `cycles` of its clock.
cudaError_t launch_spin(std::int64_t cycles, cudaStream_t stream);

}  // namespace superneurons
