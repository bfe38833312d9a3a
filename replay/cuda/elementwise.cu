#include "replay/cuda/elementwise.h"
#include "replay/cuda/launch.cuh"
#include "replay/initial.h"

namespace superneurons {
namespace {

// y[i] = f(a[i], b[i]) by 16 bytes at a time where all addresses allow it. Reading and writing the
// same element in one thread makes "in place" safe.
template <class F>
__global__ void map_vectors(const float4* a, const float4* b, float4* y, std::int64_t vectors,
                            F f) {
  for (std::int64_t i = first_item(); i < vectors; i += item_stride()) {
    const float4 left = a[i];
    const float4 right = b[i];
    y[i] = {f(left.x, right.x), f(left.y, right.y), f(left.z, right.z), f(left.w, right.w)};
  }
}

template <class F>
__global__ void map_floats(const float* a, const float* b, float* y, std::int64_t count, F f) {
  for (std::int64_t i = first_item(); i < count; i += item_stride()) y[i] = f(a[i], b[i]);
}

template <class F>
cudaError_t map(const float* a, const float* b, float* y, std::int64_t count, F f,
                cudaStream_t stream) {
  const bool vectors = aligned16(a) && aligned16(b) && aligned16(y);
  const std::int64_t whole = vectors ? count / 4 : 0;
  if (whole > 0) {
    map_vectors<<<blocks_for(whole), kThreads, 0, stream>>>(reinterpret_cast<const float4*>(a),
                                                            reinterpret_cast<const float4*>(b),
                                                            reinterpret_cast<float4*>(y), whole, f);
  }
  const std::int64_t done = whole * 4;
  if (done < count) {
    map_floats<<<blocks_for(count - done), kThreads, 0, stream>>>(a + done, b + done, y + done,
                                                                  count - done, f);
  }
  return cudaGetLastError();
}

struct Relu {
  __device__ float operator()(float x, float) const { return x > 0 ? x : 0; }
};
struct ReluBackward {
  __device__ float operator()(float y, float dy) const { return y > 0 ? dy : 0; }
};
struct Add {
  __device__ float operator()(float a, float b) const { return a + b; }
};

/// One block per plane of `inner` elements that share a bias.
__global__ void add_bias(float* y, const float* bias, std::int64_t planes, std::int64_t channels,
                         std::int64_t inner) {
  for (std::int64_t plane = blockIdx.x; plane < planes; plane += gridDim.x) {
    const float value = bias[plane % channels];
    float* row = y + plane * inner;
    if (inner % 4 == 0 && reinterpret_cast<std::uintptr_t>(row) % 16 == 0) {
      auto* vectors = reinterpret_cast<float4*>(row);
      for (std::int64_t i = threadIdx.x; i < inner / 4; i += blockDim.x) {
        const float4 v = vectors[i];
        vectors[i] = {v.x + value, v.y + value, v.z + value, v.w + value};
      }
    } else {
#pragma unroll 8
      for (std::int64_t i = threadIdx.x; i < inner; i += blockDim.x) row[i] += value;
    }
  }
}

__global__ void add_bias_rows(float* y, const float* bias, std::int64_t count,
                              std::int64_t channels) {
  for (std::int64_t i = first_item(); i < count; i += item_stride()) y[i] += bias[i % channels];
}

constexpr int kColumns = 32, kRowGroups = 8;

/// A block sums 32 columns: 8 threads per column take every eighth row, then add up in order.
__global__ void column_sums(const float* x, float* sums, std::int64_t rows, std::int64_t columns) {
  __shared__ float partial[kRowGroups][kColumns];
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
  float sum = 0;
  if (column < columns)
    for (std::int64_t row = threadIdx.y; row < rows; row += kRowGroups)
      sum += x[row * columns + column];
  partial[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int group = 1; group < kRowGroups; ++group) sum += partial[group][threadIdx.x];
  sums[column] = sum;
}

template <class T>
__global__ void copy_rows(const T* from, std::int64_t from_pitch, T* to, std::int64_t to_pitch,
                          std::int64_t width, std::int64_t count) {
  for (std::int64_t i = first_item(); i < count; i += item_stride()) {
    const std::int64_t row = i / width, column = i % width;
    to[row * to_pitch + column] = from[row * from_pitch + column];
  }
}

__global__ void dropout(const float* x, float* y, unsigned char* mask, std::int64_t count,
                        std::uint64_t key, std::uint64_t training_step, float rate, float scale) {
  for (std::int64_t i = first_item(); i < count; i += item_stride()) {
    const bool keep = dropout_keeps(key, training_step, static_cast<std::uint64_t>(i), rate);
    mask[i] = keep ? 1 : 0;
    y[i] = keep ? x[i] * scale : 0.0F;
  }
}

__global__ void dropout_backward(const float* dy, const unsigned char* mask, float* dx,
                                 std::int64_t count, float scale) {
  for (std::int64_t i = first_item(); i < count; i += item_stride())
    dx[i] = mask[i] != 0 ? dy[i] * scale : 0.0F;
}

struct Sgd {
  float rate, momentum, weight_decay;
  __device__ void operator()(float& w, float g, float& m) const {
    m = momentum * m + (g + weight_decay * w);
    w = w - rate * m;
  }
};

__global__ void sgd_vectors(float4* weight, const float4* gradient, float4* moment,
                            std::int64_t vectors, Sgd step) {
  for (std::int64_t i = first_item(); i < vectors; i += item_stride()) {
    float4 w = weight[i], m = moment[i];
    const float4 g = gradient[i];
    step(w.x, g.x, m.x);
    step(w.y, g.y, m.y);
    step(w.z, g.z, m.z);
    step(w.w, g.w, m.w);
    weight[i] = w;
    moment[i] = m;
  }
}

__global__ void sgd_floats(float* weight, const float* gradient, float* moment, std::int64_t count,
                           Sgd step) {
  for (std::int64_t i = first_item(); i < count; i += item_stride())
    step(weight[i], gradient[i], moment[i]);
}

}  // namespace

cudaError_t launch_relu(const float* x, float* y, std::int64_t count, cudaStream_t stream) {
  return map(x, x, y, count, Relu{}, stream);
}

cudaError_t launch_relu_backward(const float* y, const float* dy, float* dx, std::int64_t count,
                                 cudaStream_t stream) {
  return map(y, dy, dx, count, ReluBackward{}, stream);
}

cudaError_t launch_add(const float* a, const float* b, float* y, std::int64_t count,
                       cudaStream_t stream) {
  return map(a, b, y, count, Add{}, stream);
}

cudaError_t launch_add_bias(float* y, const float* bias, std::int64_t outer, std::int64_t channels,
                            std::int64_t inner, cudaStream_t stream) {
  const std::int64_t planes = outer * channels;
  if (inner == 1) {
    add_bias_rows<<<blocks_for(planes), kThreads, 0, stream>>>(y, bias, planes, channels);
  } else {
    const int threads = inner >= 1024 ? kThreads : 64;
    add_bias<<<blocks_for(planes, 1), threads, 0, stream>>>(y, bias, planes, channels, inner);
  }
  return cudaGetLastError();
}

cudaError_t launch_column_sums(const float* x, float* sums, std::int64_t rows, std::int64_t columns,
                               cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((columns + kColumns - 1) / kColumns);
  column_sums<<<blocks, dim3(kColumns, kRowGroups), 0, stream>>>(x, sums, rows, columns);
  return cudaGetLastError();
}

cudaError_t launch_copy_rows(const float* from, std::int64_t from_pitch, float* to,
                             std::int64_t to_pitch, std::int64_t width, std::int64_t rows,
                             cudaStream_t stream) {
  const bool vectors = from_pitch % 4 == 0 && to_pitch % 4 == 0 && width % 4 == 0 &&
                       aligned16(from) && aligned16(to);
  if (vectors) {
    const std::int64_t count = width / 4 * rows;
    copy_rows<<<blocks_for(count), kThreads, 0, stream>>>(
        reinterpret_cast<const float4*>(from), from_pitch / 4, reinterpret_cast<float4*>(to),
        to_pitch / 4, width / 4, count);
  } else {
    copy_rows<<<blocks_for(width * rows), kThreads, 0, stream>>>(from, from_pitch, to, to_pitch,
                                                                 width, width * rows);
  }
  return cudaGetLastError();
}

cudaError_t launch_dropout(const float* x, float* y, unsigned char* mask, std::int64_t count,
                           std::uint64_t key, std::uint64_t training_step, float rate,
                           cudaStream_t stream) {
  dropout<<<blocks_for(count), kThreads, 0, stream>>>(x, y, mask, count, key, training_step, rate,
                                                      1.0F / (1.0F - rate));
  return cudaGetLastError();
}

cudaError_t launch_dropout_backward(const float* dy, const unsigned char* mask, float* dx,
                                    std::int64_t count, float rate, cudaStream_t stream) {
  dropout_backward<<<blocks_for(count), kThreads, 0, stream>>>(dy, mask, dx, count,
                                                               1.0F / (1.0F - rate));
  return cudaGetLastError();
}

cudaError_t launch_sgd(float* weight, const float* gradient, float* moment, std::int64_t count,
                       float rate, float momentum, float weight_decay, cudaStream_t stream) {
  const Sgd step{rate, momentum, weight_decay};
  const bool vectors = aligned16(weight) && aligned16(gradient) && aligned16(moment);
  const std::int64_t whole = vectors ? count / 4 : 0;
  if (whole > 0) {
    sgd_vectors<<<blocks_for(whole), kThreads, 0, stream>>>(
        reinterpret_cast<float4*>(weight), reinterpret_cast<const float4*>(gradient),
        reinterpret_cast<float4*>(moment), whole, step);
  }
  const std::int64_t done = whole * 4;
  if (done < count) {
    sgd_floats<<<blocks_for(count - done), kThreads, 0, stream>>>(
        weight + done, gradient + done, moment + done, count - done, step);
  }
  return cudaGetLastError();
}

}  // namespace superneurons
