#include "replay/cuda/launch.cuh"
#include "replay/cuda/memory_kernels.h"

namespace superneurons {
namespace {

constexpr unsigned char kGuardByte = 0xA5;

__global__ void initialise(unsigned char* at, std::int64_t bytes, Init init, float scale,
                           std::uint64_t key) {
  const std::int64_t words = (bytes + 3) / 4;
  for (std::int64_t i = first_item(); i < words; i += item_stride()) {
    store_word(at, bytes, i, initial_word(init, scale, key, static_cast<std::uint64_t>(i)));
  }
}

__global__ void checksum(const unsigned char* at, std::int64_t bytes, unsigned long long* sum) {
  const std::int64_t words = (bytes + 3) / 4;
  unsigned long long mine = 0;
  for (std::int64_t i = first_item(); i < words; i += item_stride()) {
    mine += checksum_word(load_word(at, bytes, i), static_cast<std::uint64_t>(i));
  }
  mine = block_sum(mine);
  if (threadIdx.x == 0) atomicAdd(sum, mine);  // addition modulo 2^64: any order gives the same
}

__global__ void guard_fill(unsigned char* at, std::int64_t bytes, std::int64_t guard) {
  for (std::int64_t i = first_item(); i < guard; i += item_stride()) {
    at[i - guard] = kGuardByte;
    at[bytes + i] = kGuardByte;
  }
}

__global__ void guard_check(const unsigned char* at, std::int64_t bytes, std::int64_t guard,
                            unsigned long long code, unsigned long long* first) {
  for (std::int64_t i = first_item(); i < guard; i += item_stride()) {
    if (at[i - guard] != kGuardByte || at[bytes + i] != kGuardByte) atomicCAS(first, 0ULL, code);
  }
}

__global__ void store(float* to, const float* from) { *to = *from; }

__global__ void spin(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

unsigned char* raw(std::byte* at) { return reinterpret_cast<unsigned char*>(at); }
const unsigned char* raw(const std::byte* at) { return reinterpret_cast<const unsigned char*>(at); }

}  // namespace

cudaError_t launch_initialise(std::byte* at, std::int64_t bytes, Init init, float scale,
                              std::uint64_t key, cudaStream_t stream) {
  initialise<<<blocks_for(bytes / 4), kThreads, 0, stream>>>(raw(at), bytes, init, scale, key);
  return cudaGetLastError();
}

cudaError_t launch_checksum(const std::byte* at, std::int64_t bytes, unsigned long long* sum,
                            cudaStream_t stream) {
  checksum<<<blocks_for(bytes / 16), kThreads, 0, stream>>>(raw(at), bytes, sum);
  return cudaGetLastError();
}

cudaError_t launch_guard_fill(std::byte* at, std::int64_t bytes, std::int64_t guard,
                              cudaStream_t stream) {
  guard_fill<<<blocks_for(guard), kThreads, 0, stream>>>(raw(at), bytes, guard);
  return cudaGetLastError();
}

cudaError_t launch_guard_check(const std::byte* at, std::int64_t bytes, std::int64_t guard,
                               unsigned long long code, unsigned long long* first,
                               cudaStream_t stream) {
  guard_check<<<blocks_for(guard), kThreads, 0, stream>>>(raw(at), bytes, guard, code, first);
  return cudaGetLastError();
}

cudaError_t launch_store(float* to, const float* from, cudaStream_t stream) {
  store<<<1, 1, 0, stream>>>(to, from);
  return cudaGetLastError();
}

cudaError_t launch_spin(std::int64_t cycles, cudaStream_t stream) {
  spin<<<1, 1, 0, stream>>>(cycles);
  return cudaGetLastError();
}

}  // namespace superneurons
