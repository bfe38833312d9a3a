#include <cstddef>

#include "replay/cuda/channels.h"
#include "replay/cuda/launch.cuh"

namespace superneurons {
namespace {

// A warp walks a plane (the pixels of one channel of one image): 16 bytes at a time where planes
// allow it, 4 loads in flight. Threads add up few values in float, then all go on in double.

constexpr int kLanes = 32;
constexpr int kStreamWarps = 8;

struct Sums {
  double first = 0, second = 0;
};

__device__ Sums warp_sums(Sums value) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    value.first += __shfl_down_sync(0xFFFFFFFFU, value.first, offset);
    value.second += __shfl_down_sync(0xFFFFFFFFU, value.second, offset);
  }
  return value;
}

/// Sums of a block of (32, warps) threads in a fixed order; valid in thread (0, 0).
template <int warps>
__device__ Sums block_sums(Sums value) {
  __shared__ Sums partial[warps];
  value = warp_sums(value);
  if (threadIdx.x == 0) partial[threadIdx.y] = value;
  __syncthreads();
  if (threadIdx.x != 0 || threadIdx.y != 0) return {};
  Sums sum = partial[0];
  for (int warp = 1; warp < warps; ++warp) {
    sum.first += partial[warp].first;
    sum.second += partial[warp].second;
  }
  return sum;
}

__device__ bool planes_of_vectors(const void* base, std::int64_t hw) {
  return hw % 4 == 0 && reinterpret_cast<std::uintptr_t>(base) % 16 == 0;
}

/// f(a, b) for each pixel of two planes.
template <class F>
__device__ void for_plane(const float* a, const float* b, std::int64_t hw, F f) {
  if (planes_of_vectors(a, hw) && planes_of_vectors(b, hw)) {
    const auto* va = reinterpret_cast<const float4*>(a);
    const auto* vb = reinterpret_cast<const float4*>(b);
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < hw / 4; i += kLanes) {
      const float4 p = va[i];
      const float4 q = vb[i];
      f(p.x, q.x);
      f(p.y, q.y);
      f(p.z, q.z);
      f(p.w, q.w);
    }
  } else {
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < hw; i += kLanes) f(a[i], b[i]);
  }
}

/// to = f(a, b) for each pixel of two planes.
template <class F>
__device__ void map_plane(const float* a, const float* b, float* to, std::int64_t hw, F f) {
  if (planes_of_vectors(a, hw) && planes_of_vectors(b, hw) && planes_of_vectors(to, hw)) {
    const auto* va = reinterpret_cast<const float4*>(a);
    const auto* vb = reinterpret_cast<const float4*>(b);
    auto* vt = reinterpret_cast<float4*>(to);
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < hw / 4; i += kLanes) {
      const float4 p = va[i];
      const float4 q = vb[i];
      vt[i] = {f(p.x, q.x), f(p.y, q.y), f(p.z, q.z), f(p.w, q.w)};
    }
  } else {
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < hw; i += kLanes) to[i] = f(a[i], b[i]);
  }
}

constexpr int kSumWarps = 32;

/// One block per channel.
__global__ void channel_sums(const float* x, float* sums, int n, int c, std::int64_t hw) {
  Sums total;
  for (int image = static_cast<int>(threadIdx.y); image < n; image += kSumWarps) {
    const float* plane = x + (static_cast<std::int64_t>(image) * c + blockIdx.x) * hw;
    float sum = 0;
    for_plane(plane, plane, hw, [&](float value, float) { sum += value; });
    total.first += sum;
  }
  total = block_sums<kSumWarps>(total);
  if (threadIdx.x == 0 && threadIdx.y == 0) sums[blockIdx.x] = static_cast<float>(total.first);
}

/// Images of one of gridDim.y parts, in memory order, so that the last parts are still in cache
/// when the next kernel begins at the end.
struct Images {
  int begin, end;
};
__device__ Images images_of_part(int n) {
  const auto part = static_cast<std::int64_t>(blockIdx.y);
  return {static_cast<int>(part * n / gridDim.y), static_cast<int>((part + 1) * n / gridDim.y)};
}

/// partial[channel][part] = sums of x - pivot and its square, where the pivot is the channel's
/// first value: subtracting it leaves little to cancel in the variance.
__global__ void batch_norm_sums(const float* x, Sums* partial, BatchNormShape s) {
  const Images images = images_of_part(s.n);
  const float pivot = x[blockIdx.x * s.hw];
  Sums total;
  for (int image = images.begin + static_cast<int>(threadIdx.y); image < images.end;
       image += kStreamWarps) {
    const float* plane = x + (static_cast<std::int64_t>(image) * s.c + blockIdx.x) * s.hw;
    float sum = 0, squares = 0;
    for_plane(plane, plane, s.hw, [&](float value, float) {
      value -= pivot;
      sum += value;
      squares += value * value;
    });
    total.first += sum;
    total.second += squares;
  }
  total = block_sums<kStreamWarps>(total);
  if (threadIdx.x == 0 && threadIdx.y == 0) partial[blockIdx.x * gridDim.y + blockIdx.y] = total;
}

__device__ Sums sum_of_parts(const Sums* partial, int channel, int parts) {
  Sums sum;
  for (int part = 0; part < parts; ++part) {
    const Sums& next = partial[static_cast<std::int64_t>(channel) * parts + part];
    sum.first += next.first;
    sum.second += next.second;
  }
  return sum;
}

__global__ void batch_norm_statistics(const float* x, const Sums* partial, int parts, float* mean,
                                      float* invstd, float* running_mean, float* running_var,
                                      BatchNormShape s) {
  const int channel = static_cast<int>(first_item());
  if (channel >= s.c) return;
  const Sums sums = sum_of_parts(partial, channel, parts);
  const double count = static_cast<double>(s.n) * static_cast<double>(s.hw);
  const double offset = sums.first / count;
  const double average = static_cast<double>(x[channel * s.hw]) + offset;
  const double spread = sums.second / count - offset * offset;
  const double variance = spread > 0 ? spread : 0;
  mean[channel] = static_cast<float>(average);
  invstd[channel] = static_cast<float>(1 / sqrt(variance + static_cast<double>(s.epsilon)));
  const auto move = [&](float* running, double to) {
    if (running == nullptr) return;
    running[channel] = (1 - s.momentum) * running[channel] + s.momentum * static_cast<float>(to);
  };
  move(running_mean, average);
  move(running_var, count > 1 ? variance * (count / (count - 1)) : variance);
}

/// Planes from the last to the first.
__global__ void batch_norm_apply(const float* x, const float* gamma, const float* beta,
                                 const float* mean, const float* invstd, float* y,
                                 BatchNormShape s) {
  const std::int64_t planes = static_cast<std::int64_t>(s.n) * s.c;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kStreamWarps + threadIdx.y;
       i < planes; i += static_cast<std::int64_t>(gridDim.x) * kStreamWarps) {
    const std::int64_t plane = planes - 1 - i;
    const auto channel = static_cast<int>(plane % s.c);
    const float middle = mean[channel], scale = invstd[channel] * gamma[channel];
    const float shift = beta[channel];
    const float* in = x + plane * s.hw;
    map_plane(in, in, y + plane * s.hw, s.hw,
              [&](float value, float) { return (value - middle) * scale + shift; });
  }
}

/// partial[channel][part] = sums of dy and dy * normalised x.
__global__ void batch_norm_backward_sums(const float* x, const float* dy, const float* mean,
                                         const float* invstd, Sums* partial, BatchNormShape s) {
  const Images images = images_of_part(s.n);
  const float middle = mean[blockIdx.x], scale = invstd[blockIdx.x];
  Sums total;
  for (int image = images.begin + static_cast<int>(threadIdx.y); image < images.end;
       image += kStreamWarps) {
    const std::int64_t at = (static_cast<std::int64_t>(image) * s.c + blockIdx.x) * s.hw;
    float sum = 0, products = 0;
    for_plane(x + at, dy + at, s.hw, [&](float value, float gradient) {
      sum += gradient;
      products += gradient * ((value - middle) * scale);
    });
    total.first += sum;
    total.second += products;
  }
  total = block_sums<kStreamWarps>(total);
  if (threadIdx.x == 0 && threadIdx.y == 0) partial[blockIdx.x * gridDim.y + blockIdx.y] = total;
}

__global__ void batch_norm_gradients(const Sums* partial, int parts, float* dgamma, float* dbeta,
                                     int c) {
  const int channel = static_cast<int>(first_item());
  if (channel >= c) return;
  const Sums sums = sum_of_parts(partial, channel, parts);
  dbeta[channel] = static_cast<float>(sums.first);
  dgamma[channel] = static_cast<float>(sums.second);
}

/// dx = gamma invstd (dy - mean(dy) - x^ mean(dy x^)), x^ the normalised x.
__global__ void batch_norm_backward_apply(const float* x, const float* dy, const float* gamma,
                                          const float* mean, const float* invstd,
                                          const float* dgamma, const float* dbeta, float* dx,
                                          BatchNormShape s) {
  const std::int64_t planes = static_cast<std::int64_t>(s.n) * s.c;
  const float share = 1.0F / (static_cast<float>(s.n) * static_cast<float>(s.hw));
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kStreamWarps + threadIdx.y;
       i < planes; i += static_cast<std::int64_t>(gridDim.x) * kStreamWarps) {
    const std::int64_t plane = planes - 1 - i;
    const auto channel = static_cast<int>(plane % s.c);
    const float middle = mean[channel], scale = invstd[channel];
    const float factor = gamma[channel] * scale;
    const float bias = dbeta[channel] * share, slope = dgamma[channel] * share * scale;
    const std::int64_t at = plane * s.hw;
    map_plane(x + at, dy + at, dx + at, s.hw, [&](float value, float gradient) {
      return factor * (gradient - bias - (value - middle) * slope);
    });
  }
}

/// Parts of a channel: enough blocks to fill a large device, of at least one image per warp.
int parts_of(const BatchNormShape& s) {
  constexpr int kWanted = 2048;
  const int most = (s.n + kStreamWarps - 1) / kStreamWarps;
  const int wanted = (kWanted + s.c - 1) / s.c;
  return wanted < most ? wanted : most;
}

/// Whether the partial sums fit where the result will be.
bool has_room(const BatchNormShape& s, int parts) {
  const std::int64_t bytes = static_cast<std::int64_t>(s.n) * s.hw * 4;
  return parts * static_cast<std::int64_t>(sizeof(Sums)) <= bytes;
}

dim3 stream_threads() { return {kLanes, kStreamWarps}; }
int stream_blocks(const BatchNormShape& s) {
  return blocks_for(static_cast<std::int64_t>(s.n) * s.c, kStreamWarps);
}

}  // namespace

cudaError_t launch_channel_sums(const float* x, float* sums, int n, int c, std::int64_t hw,
                                cudaStream_t stream) {
  channel_sums<<<static_cast<unsigned>(c), dim3(kLanes, kSumWarps), 0, stream>>>(x, sums, n, c, hw);
  return cudaGetLastError();
}

cudaError_t launch_batch_norm(const float* x, const float* gamma, const float* beta, float* y,
                              float* save_mean, float* save_invstd, float* running_mean,
                              float* running_var, const BatchNormShape& shape,
                              cudaStream_t stream) {
  const int parts = parts_of(shape);
  if (x == y || !has_room(shape, parts)) return cudaErrorInvalidValue;
  auto* partial = reinterpret_cast<Sums*>(y);
  const dim3 blocks(static_cast<unsigned>(shape.c), static_cast<unsigned>(parts));
  batch_norm_sums<<<blocks, stream_threads(), 0, stream>>>(x, partial, shape);
  batch_norm_statistics<<<blocks_for(shape.c, 64), 64, 0, stream>>>(
      x, partial, parts, save_mean, save_invstd, running_mean, running_var, shape);
  batch_norm_apply<<<stream_blocks(shape), stream_threads(), 0, stream>>>(x, gamma, beta, save_mean,
                                                                          save_invstd, y, shape);
  return cudaGetLastError();
}

cudaError_t launch_batch_norm_backward(const float* x, const float* dy, const float* gamma,
                                       const float* save_mean, const float* save_invstd, float* dx,
                                       float* dgamma, float* dbeta, const BatchNormShape& shape,
                                       cudaStream_t stream) {
  const int parts = parts_of(shape);
  if (dx == x || dx == dy || !has_room(shape, parts)) return cudaErrorInvalidValue;
  auto* partial = reinterpret_cast<Sums*>(dx);
  const dim3 blocks(static_cast<unsigned>(shape.c), static_cast<unsigned>(parts));
  batch_norm_backward_sums<<<blocks, stream_threads(), 0, stream>>>(x, dy, save_mean, save_invstd,
                                                                    partial, shape);
  batch_norm_gradients<<<blocks_for(shape.c, 64), 64, 0, stream>>>(partial, parts, dgamma, dbeta,
                                                                   shape.c);
  batch_norm_backward_apply<<<stream_blocks(shape), stream_threads(), 0, stream>>>(
      x, dy, gamma, save_mean, save_invstd, dgamma, dbeta, dx, shape);
  return cudaGetLastError();
}

}  // namespace superneurons
