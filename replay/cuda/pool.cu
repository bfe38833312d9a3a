#include <cfloat>

#include "replay/cuda/launch.cuh"
#include "replay/cuda/spatial.h"

namespace superneurons {
namespace {

struct Window {
  int top, bottom, left, right;  // [top, bottom) x [left, right) of the input
};

__device__ Window window_of(const PoolShape& s, int row, int column) {
  const int top = row * s.stride - s.pad, left = column * s.stride - s.pad;
  return {max(top, 0), min(top + s.window, s.h), max(left, 0), min(left + s.window, s.w)};
}

/// Outputs whose window holds input row (or column) `at`: [first, last].
__device__ int first_window(int at, int window, int stride, int pad) {
  const int first = at + pad - window + 1;
  return first <= 0 ? 0 : (first + stride - 1) / stride;
}
__device__ int last_window(int at, int stride, int pad, int outputs) {
  return min((at + pad) / stride, outputs - 1);
}

// I: 32-bit where the element count allows it, since division by runtime values dominates.
template <class I, bool average>
__global__ void pool(const float* x, float* y, PoolShape s) {
  const I count = static_cast<I>(s.planes * s.oh * s.ow);
  for (I i = static_cast<I>(first_item()); i < count; i += static_cast<I>(item_stride())) {
    const int column = static_cast<int>(i % static_cast<I>(s.ow));
    const I rest = i / static_cast<I>(s.ow);
    const int row = static_cast<int>(rest % static_cast<I>(s.oh));
    const float* plane = x + static_cast<std::int64_t>(rest / static_cast<I>(s.oh)) * s.h * s.w;
    const Window at = window_of(s, row, column);
    float value = average ? 0.0F : -FLT_MAX;
    for (int r = at.top; r < at.bottom; ++r) {
      for (int c = at.left; c < at.right; ++c) {
        const float next = plane[r * s.w + c];
        if (average) value += next;
        else if (next > value) value = next;
      }
    }
    if (average) value /= static_cast<float>((at.bottom - at.top) * (at.right - at.left));
    y[i] = value;
  }
}

/// Whether input (row, column) is the first of its window with the window's maximum.
__device__ bool is_first_maximum(const float* plane, const PoolShape& s, const Window& at, int row,
                                 int column, float most) {
  for (int r = at.top; r <= row; ++r) {
    const int end = r == row ? column : at.right;
    for (int c = at.left; c < end; ++c)
      if (plane[r * s.w + c] == most) return false;
  }
  return true;
}

/// One thread per input element gathers from the windows that hold it, so nothing is added
/// atomically.
template <class I, bool average>
__global__ void pool_backward(const float* x, const float* y, const float* dy, float* dx,
                              PoolShape s) {
  const I count = static_cast<I>(s.planes * s.h * s.w);
  for (I i = static_cast<I>(first_item()); i < count; i += static_cast<I>(item_stride())) {
    const int column = static_cast<int>(i % static_cast<I>(s.w));
    const I rest = i / static_cast<I>(s.w);
    const int row = static_cast<int>(rest % static_cast<I>(s.h));
    const auto plane = static_cast<std::int64_t>(rest / static_cast<I>(s.h));
    const float* in = average ? nullptr : x + plane * s.h * s.w;
    const float here = average ? 0.0F : in[row * s.w + column];
    const std::int64_t out = plane * s.oh * s.ow;
    float sum = 0;
    const int last_row = last_window(row, s.stride, s.pad, s.oh);
    const int last_column = last_window(column, s.stride, s.pad, s.ow);
    for (int r = first_window(row, s.window, s.stride, s.pad); r <= last_row; ++r) {
      for (int c = first_window(column, s.window, s.stride, s.pad); c <= last_column; ++c) {
        const Window at = window_of(s, r, c);
        const std::int64_t o = out + r * s.ow + c;
        if (average) {
          sum += dy[o] / static_cast<float>((at.bottom - at.top) * (at.right - at.left));
        } else if (here == y[o] && is_first_maximum(in, s, at, row, column, here)) {
          sum += dy[o];
        }
      }
    }
    dx[i] = sum;
  }
}

constexpr std::int64_t kFits32 = std::int64_t{1} << 30;

template <bool average>
cudaError_t forward(const float* x, float* y, const PoolShape& shape, cudaStream_t stream) {
  const std::int64_t count = shape.planes * shape.oh * shape.ow;
  if (count < kFits32)
    pool<std::uint32_t, average><<<blocks_for(count), kThreads, 0, stream>>>(x, y, shape);
  else pool<std::uint64_t, average><<<blocks_for(count), kThreads, 0, stream>>>(x, y, shape);
  return cudaGetLastError();
}

template <bool average>
cudaError_t backward(const float* x, const float* y, const float* dy, float* dx,
                     const PoolShape& shape, cudaStream_t stream) {
  const std::int64_t count = shape.planes * shape.h * shape.w;
  const int blocks = blocks_for(count);
  if (count < kFits32)
    pool_backward<std::uint32_t, average><<<blocks, kThreads, 0, stream>>>(x, y, dy, dx, shape);
  else pool_backward<std::uint64_t, average><<<blocks, kThreads, 0, stream>>>(x, y, dy, dx, shape);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_max_pool(const float* x, float* y, const PoolShape& shape, cudaStream_t stream) {
  return forward<false>(x, y, shape, stream);
}
cudaError_t launch_average_pool(const float* x, float* y, const PoolShape& shape,
                                cudaStream_t stream) {
  return forward<true>(x, y, shape, stream);
}
cudaError_t launch_max_pool_backward(const float* x, const float* y, const float* dy, float* dx,
                                     const PoolShape& shape, cudaStream_t stream) {
  return backward<false>(x, y, dy, dx, shape, stream);
}
cudaError_t launch_average_pool_backward(const float* dy, float* dx, const PoolShape& shape,
                                         cudaStream_t stream) {
  return backward<true>(nullptr, nullptr, dy, dx, shape, stream);
}

}  // namespace superneurons
