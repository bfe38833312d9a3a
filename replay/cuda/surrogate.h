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

/// One byte per 4 KiB of a range is read into *sum or, with `write`, set from it.
cudaError_t launch_sample(std::byte* at, std::int64_t bytes, bool write, unsigned long long* sum,
                          cudaStream_t stream);

}  // namespace superneurons
