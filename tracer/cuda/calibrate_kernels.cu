#include "tracer/cuda/calibrate_kernels.h"

namespace superneurons {
namespace {

__global__ void empty_kernel() {}

__global__ void spin_kernel(long long cycles, unsigned long long* ns) {
  unsigned long long begin = 0, end = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  const long long from = clock64();
  while (clock64() - from < cycles) {
  }
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(end));
  if (ns) *ns = end - begin;
}

__global__ void stream_kernel(const float4* x, float4* y, long long count) {
  const long long stride = static_cast<long long>(gridDim.x) * blockDim.x;
  for (long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; i < count;
       i += stride) {
    const float4 a = x[i];
    float4 b = y[i];
    b.x += a.x, b.y += a.y, b.z += a.z, b.w += a.w;
    y[i] = b;
  }
}

}  // namespace

void launch_empty(cudaStream_t stream) { empty_kernel<<<1, 32, 0, stream>>>(); }

void launch_spin(long long cycles, unsigned long long* ns, cudaStream_t stream) {
  spin_kernel<<<1, 1, 0, stream>>>(cycles, ns);
}

void launch_stream(const std::byte* x, std::byte* y, Bytes bytes, cudaStream_t stream) {
  constexpr int kThreads = 256, kBlocks = 2048;
  stream_kernel<<<kBlocks, kThreads, 0, stream>>>(
      reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y),
      bytes.count / static_cast<long long>(sizeof(float4)));
}

}  // namespace superneurons
