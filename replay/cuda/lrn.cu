#include "replay/cuda/launch.cuh"
#include "replay/cuda/spatial.h"

namespace superneurons {
namespace {

/// k + alpha / size * sum of squares around channel `channel`; `x` is at channel 0 of a pixel.
template <int half>
__device__ float scale_at(const float* x, const LrnShape& s, int channel) {
  float sum = 0;
#pragma unroll
  for (int offset = -half; offset <= half; ++offset) {
    const int c = channel + offset;
    if (c < 0 || c >= s.c) continue;
    const float value = x[c * s.hw];
    sum += value * value;
  }
  return s.k + s.alpha / static_cast<float>(s.size) * sum;
}

/// One thread per pixel and channel.
template <int half>
__global__ void lrn(const float* x, float* y, LrnShape s) {
  const std::int64_t count = s.n * s.c * s.hw;
  for (std::int64_t i = first_item(); i < count; i += item_stride()) {
    const auto channel = static_cast<int>(i / s.hw % s.c);
    const float scale = scale_at<half>(x + (i - channel * s.hw), s, channel);
    y[i] = x[i] * powf(scale, -s.beta);
  }
}

/// dx_i = dy_i s_i^-beta - 2 alpha beta / size * x_i * sum over j near i of t_j, where
/// t_j = dy_j y_j / s_j. One thread walks the channels of a pixel with the last t and dy s^-beta in
/// registers, so that dy_j is read before dx_(j - half) is written and dx may be dy.
template <int half>
__global__ void lrn_backward(const float* x, const float* y, const float* dy, float* dx,
                             LrnShape s) {
  constexpr int size = 2 * half + 1;
  const float factor = 2 * s.alpha * s.beta / static_cast<float>(s.size);
  for (std::int64_t pixel = first_item(); pixel < s.n * s.hw; pixel += item_stride()) {
    const std::int64_t base = pixel / s.hw * s.c * s.hw + pixel % s.hw;
    float t[size] = {};           // t[size - 1] belongs to channel j
    float scaled[half + 1] = {};  // scaled[half] = dy_j s_j^-beta
    for (int j = 0; j < s.c + half; ++j) {
#pragma unroll
      for (int m = 0; m + 1 < size; ++m) t[m] = t[m + 1];
#pragma unroll
      for (int m = 0; m < half; ++m) scaled[m] = scaled[m + 1];
      t[size - 1] = 0;
      if (j < s.c) {
        const float scale = scale_at<half>(x + base, s, j);
        const std::int64_t at = base + j * s.hw;
        const float gradient = dy[at];
        t[size - 1] = gradient * y[at] / scale;
        scaled[half] = gradient * powf(scale, -s.beta);
      }
      const int i = j - half;
      if (i < 0) continue;
      float sum = 0;
#pragma unroll
      for (int m = 0; m < size; ++m) sum += t[m];
      const std::int64_t at = base + i * s.hw;
      dx[at] = scaled[0] - factor * x[at] * sum;
    }
  }
}

template <int half>
cudaError_t forward(const float* x, float* y, const LrnShape& shape, cudaStream_t stream) {
  lrn<half><<<blocks_for(shape.n * shape.c * shape.hw), kThreads, 0, stream>>>(x, y, shape);
  return cudaGetLastError();
}

template <int half>
cudaError_t backward(const float* x, const float* y, const float* dy, float* dx,
                     const LrnShape& shape, cudaStream_t stream) {
  constexpr int threads = 64;  // few pixels, long walks: small blocks spread better
  lrn_backward<half>
      <<<blocks_for(shape.n * shape.hw, threads), threads, 0, stream>>>(x, y, dy, dx, shape);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_lrn(const float* x, float* y, const LrnShape& shape, cudaStream_t stream) {
  switch (shape.size) {
    case 3:
      return forward<1>(x, y, shape, stream);
    case 5:
      return forward<2>(x, y, shape, stream);
    case 7:
      return forward<3>(x, y, shape, stream);
    case 9:
      return forward<4>(x, y, shape, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_lrn_backward(const float* x, const float* y, const float* dy, float* dx,
                                const LrnShape& shape, cudaStream_t stream) {
  switch (shape.size) {
    case 3:
      return backward<1>(x, y, dy, dx, shape, stream);
    case 5:
      return backward<2>(x, y, dy, dx, shape, stream);
    case 7:
      return backward<3>(x, y, dy, dx, shape, stream);
    case 9:
      return backward<4>(x, y, dy, dx, shape, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace superneurons
