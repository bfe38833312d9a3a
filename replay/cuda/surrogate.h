// Launches of surrogate kernels (replay/surrogate_mix.h); asynchronous on `stream`.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace superneurons {

/// Sums that a `verify` op makes, on the device: of all pieces, and of those of tensors in op.once.
struct SurrogateSums {
  unsigned long long all = 0;
  unsigned long long once = 0;
};

/// *sum += digest of a piece.
cudaError_t launch_digest(const std::byte* at, std::int64_t bytes, std::uint64_t salt,
                          unsigned long long* sum, cudaStream_t stream);

/// Writes every byte of an output of `tensor`; the digest is key + sums->all, plus sums->once if
/// `once`.
cudaError_t launch_output(std::byte* at, std::int64_t bytes, std::uint64_t key,
                          std::uint32_t tensor, bool once, const SurrogateSums* sums,
                          cudaStream_t stream);

/// Ranges that a `timed` op touches; null: none.
struct SurrogateSamples {
  const std::byte* read = nullptr;
  std::int64_t read_bytes = 0;
  std::byte* write = nullptr;
  std::int64_t write_bytes = 0;
};

/// One kernel that is busy for `ns`, by a clock of `cycles_per_ns`: what a launch costs besides is
/// the same gap that follows any kernel (DeviceProfile::gap_ns is measured this way). Meanwhile it
/// reads and writes one byte per 4 KiB of the ranges, fewer in short ops, so that sampling does not
/// outlast them.
cudaError_t launch_timed(const SurrogateSamples& samples, double ns, double cycles_per_ns,
                         unsigned long long* sum, cudaStream_t stream);

}  // namespace superneurons
