#include "replay/cuda/launch.cuh"
#include "replay/cuda/pointwise_copy.h"

namespace superneurons {
namespace {

constexpr int kWarps = 8;  // a warp per plane: no division to find a plane, few to find a pixel

__global__ void gather_pixels(const float* from, float* to, PixelCopy s) {
  const int pixels = s.oh * s.ow;
  const std::int64_t planes = static_cast<std::int64_t>(s.n) * s.c;
  for (std::int64_t plane = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
       plane < planes; plane += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const std::int64_t image = plane / s.c;
    const float* in = from + plane * s.h * s.w;
    float* out = to + image * s.image + (plane - image * s.c) * s.channel;
    if (s.stride == 1) {
      for (int i = static_cast<int>(threadIdx.x); i < pixels; i += 32) out[i] = in[i];
    } else {
      for (int i = static_cast<int>(threadIdx.x); i < pixels; i += 32) {
        const int row = i / s.ow;
        out[i] = in[(row * s.w + (i - row * s.ow)) * s.stride];
      }
    }
  }
}

__global__ void scatter_pixels(const float* from, float* to, PixelCopy s) {
  const int pixels = s.h * s.w;
  const std::int64_t planes = static_cast<std::int64_t>(s.n) * s.c;
  for (std::int64_t plane = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.y;
       plane < planes; plane += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const std::int64_t image = plane / s.c;
    const float* in = from + image * s.image + (plane - image * s.c) * s.channel;
    float* out = to + plane * s.h * s.w;
    if (s.stride == 1) {
      for (int i = static_cast<int>(threadIdx.x); i < pixels; i += 32) out[i] = in[i];
    } else {
      for (int i = static_cast<int>(threadIdx.x); i < pixels; i += 32) {
        const int row = i / s.w, column = i - row * s.w;
        const int r = row / s.stride, c = column / s.stride;
        const bool taken = r * s.stride == row && c * s.stride == column && r < s.oh && c < s.ow;
        out[i] = taken ? in[r * s.ow + c] : 0.0F;
      }
    }
  }
}

dim3 warps() { return {32, kWarps}; }
int blocks(const PixelCopy& s) { return blocks_for(static_cast<std::int64_t>(s.n) * s.c, kWarps); }

}  // namespace

cudaError_t launch_gather_pixels(const float* from, float* to, const PixelCopy& copy,
                                 cudaStream_t stream) {
  gather_pixels<<<blocks(copy), warps(), 0, stream>>>(from, to, copy);
  return cudaGetLastError();
}

cudaError_t launch_scatter_pixels(const float* from, float* to, const PixelCopy& copy,
                                  cudaStream_t stream) {
  scatter_pixels<<<blocks(copy), warps(), 0, stream>>>(from, to, copy);
  return cudaGetLastError();
}

}  // namespace superneurons
