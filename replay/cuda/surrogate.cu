#include "replay/cuda/launch.cuh"
#include "replay/cuda/surrogate.h"
#include "replay/surrogate_mix.h"

namespace superneurons {
namespace {

constexpr std::int64_t kSample = 4096;

__device__ std::uint64_t four(uint4 words, std::uint64_t salt, std::uint64_t index) {
  return surrogate_digest_word(salt, index, words.x) +
         surrogate_digest_word(salt, index + 1, words.y) +
         surrogate_digest_word(salt, index + 2, words.z) +
         surrogate_digest_word(salt, index + 3, words.w);
}

/// The first `vectors` 16 bytes as vectors, the rest word by word.
__global__ void digest(const unsigned char* at, std::int64_t bytes, std::int64_t vectors,
                       std::uint64_t salt, unsigned long long* sum) {
  unsigned long long mine = 0;
  const auto* whole = reinterpret_cast<const uint4*>(at);
  for (std::int64_t i = first_item(); i < vectors; i += item_stride())
    mine += four(whole[i], salt, static_cast<std::uint64_t>(i) * 4);
  for (std::int64_t i = vectors * 4 + first_item(); i < (bytes + 3) / 4; i += item_stride())
    mine += surrogate_digest_word(salt, static_cast<std::uint64_t>(i), load_word(at, bytes, i));
  mine = block_sum(mine);
  if (threadIdx.x == 0) atomicAdd(sum, mine);
}

__global__ void output(unsigned char* at, std::int64_t bytes, std::int64_t vectors,
                       std::uint64_t key, std::uint32_t tensor, bool once,
                       const SurrogateSums* sums) {
  const std::uint64_t base = key + sums->all + (once ? sums->once : 0);
  const std::uint64_t mine = surrogate_output_key(base, tensor);
  auto* whole = reinterpret_cast<uint4*>(at);
  for (std::int64_t i = first_item(); i < vectors; i += item_stride()) {
    const auto word = static_cast<std::uint64_t>(i) * 4;
    whole[i] = {surrogate_output_word(mine, word), surrogate_output_word(mine, word + 1),
                surrogate_output_word(mine, word + 2), surrogate_output_word(mine, word + 3)};
  }
  for (std::int64_t i = vectors * 4 + first_item(); i < (bytes + 3) / 4; i += item_stride())
    store_word(at, bytes, i, surrogate_output_word(mine, static_cast<std::uint64_t>(i)));
}

__global__ void sample_read(const unsigned char* at, std::int64_t bytes, unsigned long long* sum) {
  unsigned long long mine = 0;
  for (std::int64_t i = first_item() * kSample; i < bytes; i += item_stride() * kSample)
    mine += at[i];
  mine = block_sum(mine);
  if (threadIdx.x == 0) atomicAdd(sum, mine);
}

__global__ void sample_write(unsigned char* at, std::int64_t bytes, const unsigned long long* sum) {
  for (std::int64_t i = first_item() * kSample; i < bytes; i += item_stride() * kSample)
    at[i] = static_cast<unsigned char>(*sum);
}

std::int64_t whole_vectors(const void* at, std::int64_t bytes) {
  return aligned16(at) ? bytes / 16 : 0;
}

}  // namespace

cudaError_t launch_digest(const std::byte* at, std::int64_t bytes, std::uint64_t salt,
                          unsigned long long* sum, cudaStream_t stream) {
  digest<<<blocks_for(bytes / 16), kThreads, 0, stream>>>(
      reinterpret_cast<const unsigned char*>(at), bytes, whole_vectors(at, bytes), salt, sum);
  return cudaGetLastError();
}

cudaError_t launch_output(std::byte* at, std::int64_t bytes, std::uint64_t key,
                          std::uint32_t tensor, bool once, const SurrogateSums* sums,
                          cudaStream_t stream) {
  output<<<blocks_for(bytes / 16), kThreads, 0, stream>>>(reinterpret_cast<unsigned char*>(at),
                                                          bytes, whole_vectors(at, bytes), key,
                                                          tensor, once, sums);
  return cudaGetLastError();
}

cudaError_t launch_sample(std::byte* at, std::int64_t bytes, bool write, unsigned long long* sum,
                          cudaStream_t stream) {
  auto* raw = reinterpret_cast<unsigned char*>(at);
  const int blocks = blocks_for(bytes / kSample);
  if (write) sample_write<<<blocks, kThreads, 0, stream>>>(raw, bytes, sum);
  else sample_read<<<blocks, kThreads, 0, stream>>>(raw, bytes, sum);
  return cudaGetLastError();
}

}  // namespace superneurons
