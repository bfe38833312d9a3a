#include "replay/cuda/launch.cuh"
#include "replay/cuda/surrogate.h"
#include "replay/surrogate_mix.h"

namespace superneurons {
namespace {

constexpr std::int64_t kSample = 4096;  // bytes that one sample stands for, if time allows
constexpr double kNsPerSample = 4;      // far more than many of them take together

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

__device__ unsigned long long sample_read(const unsigned char* at, std::int64_t bytes,
                                          std::int64_t stride) {
  unsigned long long mine = 0;
  for (std::int64_t i = first_item() * stride; i < bytes; i += item_stride() * stride)
    mine += at[i];
  return mine;
}

__device__ void sample_write(unsigned char* at, std::int64_t bytes, std::int64_t stride,
                             unsigned long long value) {
  for (std::int64_t i = first_item() * stride; i < bytes; i += item_stride() * stride)
    at[i] = static_cast<unsigned char>(value);
}

/// The first thread of all stays for `cycles` of its clock, which it reads before it samples.
__global__ void timed(SurrogateSamples samples, std::int64_t stride, unsigned long long* sum,
                      long long cycles) {
  const long long start = clock64();
  unsigned long long mine = 0;
  if (samples.read != nullptr)
    mine = sample_read(reinterpret_cast<const unsigned char*>(samples.read), samples.read_bytes,
                       stride);
  if (samples.write != nullptr)
    sample_write(reinterpret_cast<unsigned char*>(samples.write), samples.write_bytes, stride,
                 mine);
  // Nobody needs the sum: it keeps the reads from being left out.
  if (samples.read != nullptr && samples.write == nullptr && mine != 0) atomicAdd(sum, mine);
  if (first_item() != 0) return;
  while (clock64() - start < cycles) {
  }
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

cudaError_t launch_timed(const SurrogateSamples& samples, double ns, double cycles_per_ns,
                         unsigned long long* sum, cudaStream_t stream) {
  const std::int64_t bytes =
      samples.read_bytes > samples.write_bytes ? samples.read_bytes : samples.write_bytes;
  const auto affordable = static_cast<std::int64_t>(ns / kNsPerSample) + 1;
  const std::int64_t wanted = bytes / kSample + 1;
  const std::int64_t count = wanted < affordable ? wanted : affordable;
  const std::int64_t stride = (bytes + count) / count;
  timed<<<blocks_for(count), kThreads, 0, stream>>>(samples, stride, sum,
                                                    static_cast<long long>(ns * cycles_per_ns));
  return cudaGetLastError();
}

}  // namespace superneurons
