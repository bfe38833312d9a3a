#include "replay/cuda/launch.cuh"
#include "replay/cuda/spatial.h"

namespace superneurons {
namespace {

// A thread walks channels of one pixel with the window of x in registers, so that memory gives each
// value once. Channels are cut into chunks to have enough threads; chunks read a few channels of
// their neighbours.

constexpr int kChunk = 32;

struct Walk {
  std::int64_t pixel = 0;  // where channel 0 of the pixel is
  int begin = 0, end = 0;  // channels
};
__device__ Walk walk_of(std::int64_t item, const LrnShape& s, int chunk) {
  const std::int64_t pixels = s.n * s.hw;
  const std::int64_t pixel = item % pixels, image = pixel / s.hw;
  const int begin = static_cast<int>(item / pixels) * chunk;
  return {image * s.c * s.hw + (pixel - image * s.hw), begin, min(begin + chunk, s.c)};
}

__device__ float channel_of(const float* x, const LrnShape& s, const Walk& walk, int channel) {
  return channel >= 0 && channel < s.c ? x[walk.pixel + channel * s.hw] : 0.0F;
}

/// Drops the first value and puts `next` at the end.
template <int size>
__device__ void shift(float (&window)[size], float next) {
#pragma unroll
  for (int m = 0; m + 1 < size; ++m) window[m] = window[m + 1];
  window[size - 1] = next;
}

template <int size>
__device__ float scale_of(const float (&window)[size], const LrnShape& s) {
  float sum = 0;
#pragma unroll
  for (int m = 0; m < size; ++m) sum += window[m] * window[m];
  return s.k + s.alpha / static_cast<float>(s.size) * sum;
}

/// scale^-beta; AlexNet's beta of 3/4 by two roots, which cost much less than powf.
__device__ float to_minus_beta(float scale, const LrnShape& s) {
  if (s.beta != 0.75F) return powf(scale, -s.beta);
  const float root = rsqrtf(scale);
  return root * sqrtf(root);
}

template <int half>
__global__ void lrn(const float* x, float* y, LrnShape s, int chunk, std::int64_t items) {
  constexpr int size = 2 * half + 1;
  for (std::int64_t item = first_item(); item < items; item += item_stride()) {
    const Walk walk = walk_of(item, s, chunk);
    float window[size] = {};  // window[half] belongs to channel i
#pragma unroll
    for (int m = -half; m < half; ++m) shift(window, channel_of(x, s, walk, walk.begin + m));
#pragma unroll 4
    for (int i = walk.begin; i < walk.end; ++i) {
      shift(window, channel_of(x, s, walk, i + half));
      y[walk.pixel + i * s.hw] = window[half] * to_minus_beta(scale_of(window, s), s);
    }
  }
}

/// dx_i = dy_i s_i^-beta - 2 alpha beta / size * x_i * sum over j near i of t_j, where
/// t_j = dy_j y_j / s_j and y_j = x_j s_j^-beta. A thread keeps the last t and dy s^-beta, so that
/// dy_j is read before dx_(j - half) is written, and dx may be dy if a chunk is all channels.
template <int half>
__global__ void lrn_backward(const float* x, const float* dy, float* dx, LrnShape s, int chunk,
                             std::int64_t items) {
  constexpr int size = 2 * half + 1;
  const float factor = 2 * s.alpha * s.beta / static_cast<float>(s.size);
  for (std::int64_t item = first_item(); item < items; item += item_stride()) {
    const Walk walk = walk_of(item, s, chunk);
    float window[size] = {};      // window[half] belongs to channel j, window[0] to j - half
    float t[size] = {};           // t[size - 1] belongs to channel j
    float scaled[half + 1] = {};  // scaled[half] = dy_j s_j^-beta
    const int first = walk.begin - half;
#pragma unroll
    for (int m = -half; m < half; ++m) shift(window, channel_of(x, s, walk, first + m));
#pragma unroll 4
    for (int j = first; j < walk.end + half; ++j) {
      shift(window, channel_of(x, s, walk, j + half));
      const float scale = scale_of(window, s);
      const float gradient = channel_of(dy, s, walk, j) * to_minus_beta(scale, s);
      shift(scaled, gradient);
      shift(t, gradient * window[half] / scale);
      const int i = j - half;
      if (i < walk.begin) continue;
      float sum = 0;
#pragma unroll
      for (int m = 0; m < size; ++m) sum += t[m];
      dx[walk.pixel + i * s.hw] = scaled[0] - factor * window[0] * sum;
    }
  }
}

std::int64_t items_of(const LrnShape& s, int chunk) {
  return s.n * s.hw * ((s.c + chunk - 1) / chunk);
}

template <int half>
cudaError_t forward(const float* x, float* y, const LrnShape& shape, cudaStream_t stream) {
  const std::int64_t items = items_of(shape, kChunk);
  lrn<half><<<blocks_for(items), kThreads, 0, stream>>>(x, y, shape, kChunk, items);
  return cudaGetLastError();
}

template <int half>
cudaError_t backward(const float* x, const float* dy, float* dx, const LrnShape& shape,
                     cudaStream_t stream) {
  constexpr int threads = 128;
  const int chunk = dx == dy ? shape.c : kChunk;
  const std::int64_t items = items_of(shape, chunk);
  lrn_backward<half>
      <<<blocks_for(items, threads), threads, 0, stream>>>(x, dy, dx, shape, chunk, items);
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

cudaError_t launch_lrn_backward(const float* x, const float* dy, float* dx, const LrnShape& shape,
                                cudaStream_t stream) {
  switch (shape.size) {
    case 3:
      return backward<1>(x, dy, dx, shape, stream);
    case 5:
      return backward<2>(x, dy, dx, shape, stream);
    case 7:
      return backward<3>(x, dy, dx, shape, stream);
    case 9:
      return backward<4>(x, dy, dx, shape, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace superneurons
