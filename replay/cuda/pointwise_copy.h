// Copies of every stride-th pixel, for pointwise convolutions: asynchronous on `stream`.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace superneurons {

/// Images n c h w, of which the pixels (i * stride, j * stride), i < oh, j < ow, are planes of
/// another array, at the distances given (in floats) from image to image and channel to channel.
struct PixelCopy {
  int n = 0, c = 0, h = 0, w = 0, oh = 0, ow = 0, stride = 1;
  std::int64_t image = 0, channel = 0;
};
/// From images to planes.
cudaError_t launch_gather_pixels(const float* from, float* to, const PixelCopy& copy,
                                 cudaStream_t stream);
/// From planes to images; the pixels between become 0.
cudaError_t launch_scatter_pixels(const float* from, float* to, const PixelCopy& copy,
                                  cudaStream_t stream);

}  // namespace superneurons
