// Shapes of launches: grid-stride loops with enough blocks to keep device memory busy.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace superneurons {

inline constexpr int kThreads = 256;
inline constexpr std::int64_t kMostBlocks = 8192;  // some 60 per multiprocessor of an H200

inline int blocks_for(std::int64_t items, int threads = kThreads) {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return static_cast<int>(blocks < 1 ? 1 : (blocks > kMostBlocks ? kMostBlocks : blocks));
}

inline bool aligned16(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }

__device__ inline std::int64_t first_item() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t item_stride() {
  return static_cast<std::int64_t>(gridDim.x) * blockDim.x;
}

/// Little-endian word `index` of a byte range of any alignment; bytes beyond the end are zeros.
__device__ inline std::uint32_t load_word(const unsigned char* at, std::int64_t bytes,
                                          std::int64_t index) {
  const std::int64_t offset = index * 4;
  if (offset + 4 <= bytes && reinterpret_cast<std::uintptr_t>(at) % 4 == 0) {
    return *reinterpret_cast<const std::uint32_t*>(at + offset);
  }
  std::uint32_t word = 0;
  for (int i = 0; i < 4 && offset + i < bytes; ++i) {
    word |= static_cast<std::uint32_t>(at[offset + i]) << (8 * i);
  }
  return word;
}
__device__ inline void store_word(unsigned char* at, std::int64_t bytes, std::int64_t index,
                                  std::uint32_t word) {
  const std::int64_t offset = index * 4;
  if (offset + 4 <= bytes && reinterpret_cast<std::uintptr_t>(at) % 4 == 0) {
    *reinterpret_cast<std::uint32_t*>(at + offset) = word;
    return;
  }
  for (int i = 0; i < 4 && offset + i < bytes; ++i) {
    at[offset + i] = static_cast<unsigned char>(word >> (8 * i));
  }
}

/// Sum over the block in a fixed order; valid in thread 0. blockDim.x must be a power of two of at
/// most 1024.
template <class T>
__device__ inline T block_sum(T value) {
  __shared__ T partial[1024];
  __syncthreads();
  partial[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  return partial[0];
}

}  // namespace superneurons
