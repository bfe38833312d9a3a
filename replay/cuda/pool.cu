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

/// One thread per input element gathers from the windows that hold it, so nothing is added
/// atomically.
template <class I>
__global__ void average_pool_backward(const float* dy, float* dx, PoolShape s) {
  const I count = static_cast<I>(s.planes * s.h * s.w);
  for (I i = static_cast<I>(first_item()); i < count; i += static_cast<I>(item_stride())) {
    const int column = static_cast<int>(i % static_cast<I>(s.w));
    const I rest = i / static_cast<I>(s.w);
    const int row = static_cast<int>(rest % static_cast<I>(s.h));
    const auto plane = static_cast<std::int64_t>(rest / static_cast<I>(s.h));
    const std::int64_t out = plane * s.oh * s.ow;
    float sum = 0;
    const int last_row = last_window(row, s.stride, s.pad, s.oh);
    const int last_column = last_window(column, s.stride, s.pad, s.ow);
    for (int r = first_window(row, s.window, s.stride, s.pad); r <= last_row; ++r) {
      for (int c = first_window(column, s.window, s.stride, s.pad); c <= last_column; ++c) {
        const Window at = window_of(s, r, c);
        sum += dy[out + r * s.ow + c] /
               static_cast<float>((at.bottom - at.top) * (at.right - at.left));
      }
    }
    dx[i] = sum;
  }
}

constexpr int kRowLanes = 32, kRowWarps = 8;

/// Offset in the plane of the first maximum of a window; the window's first element if nothing in
/// it is a number.
__device__ int first_maximum(const float* plane, const PoolShape& s, const Window& at) {
  int best = at.top * s.w + at.left;
  float most = -FLT_MAX;
  for (int r = at.top; r < at.bottom; ++r) {
    for (int c = at.left; c < at.right; ++c) {
      const float next = plane[r * s.w + c];
      if (next > most) {
        most = next;
        best = r * s.w + c;
      }
    }
  }
  return best;
}

/// A block does `rows` rows of one plane of the input: it finds the first maximum of every window
/// that holds one of them, keeps it with its gradient in shared memory, and then gathers. A warp
/// walks a row, so no division finds a pixel. window and stride: as in the shape, or 0 for any.
template <int window, int stride>
__global__ void max_pool_backward(const float* x, const float* dy, float* dx, PoolShape s,
                                  int rows) {
  extern __shared__ int shared[];
  if (window > 0) s.window = window;
  if (stride > 0) s.stride = stride;
  const int begin = static_cast<int>(blockIdx.y) * rows, end = min(begin + rows, s.h);
  const int first = first_window(begin, s.window, s.stride, s.pad);
  const int last = last_window(end - 1, s.stride, s.pad, s.oh);
  const int windows = max(last - first + 1, 0) * s.ow;
  int* const maximum = shared;
  auto* const gradient = reinterpret_cast<float*>(shared + windows);
  for (std::int64_t plane = blockIdx.x; plane < s.planes; plane += gridDim.x) {
    const float* in = x + plane * s.h * s.w;
    const float* incoming = dy + (plane * s.oh + first) * s.ow;
    __syncthreads();
    for (int r = first + static_cast<int>(threadIdx.y); r <= last; r += kRowWarps) {
      for (int c = static_cast<int>(threadIdx.x); c < s.ow; c += kRowLanes) {
        const int at = (r - first) * s.ow + c;
        maximum[at] = first_maximum(in, s, window_of(s, r, c));
        gradient[at] = incoming[at];
      }
    }
    __syncthreads();
    for (int row = begin + static_cast<int>(threadIdx.y); row < end; row += kRowWarps) {
      const int top = first_window(row, s.window, s.stride, s.pad);
      const int bottom = last_window(row, s.stride, s.pad, s.oh);
      for (int column = static_cast<int>(threadIdx.x); column < s.w; column += kRowLanes) {
        const int left = first_window(column, s.window, s.stride, s.pad);
        const int right = last_window(column, s.stride, s.pad, s.ow);
        const int here = row * s.w + column;
        float sum = 0;
        for (int r = top; r <= bottom; ++r) {
          for (int c = left; c <= right; ++c) {
            const int at = (r - first) * s.ow + c;
            if (maximum[at] == here) sum += gradient[at];
          }
        }
        dx[plane * s.h * s.w + here] = sum;
      }
    }
  }
}

/// Rows of the input per block, and what their windows take of shared memory; no rows if even those
/// of one row are too many.
struct Tile {
  int rows = 0;
  std::size_t shared = 0;
};
Tile tile_of(const PoolShape& s) {
  constexpr std::size_t kMost = 16 * 1024;  // several blocks per multiprocessor
  constexpr std::size_t kLimit = 48 * 1024;
  const auto bytes = [&](int rows) {
    const int windows = (rows + s.window - 2) / s.stride + 1;
    return static_cast<std::size_t>(windows < s.oh ? windows : s.oh) *
           static_cast<std::size_t>(s.ow) * 8;
  };
  int rows = s.h < 32 ? s.h : 32;
  while (rows > 1 && bytes(rows) > kMost) rows /= 2;
  if (bytes(rows) > kLimit) return {};
  return {rows, bytes(rows)};
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

}  // namespace

cudaError_t launch_max_pool(const float* x, float* y, const PoolShape& shape, cudaStream_t stream) {
  return forward<false>(x, y, shape, stream);
}
cudaError_t launch_average_pool(const float* x, float* y, const PoolShape& shape,
                                cudaStream_t stream) {
  return forward<true>(x, y, shape, stream);
}
bool max_pool_backward_fits(const PoolShape& shape) { return tile_of(shape).rows > 0; }

cudaError_t launch_max_pool_backward(const float* x, const float* dy, float* dx,
                                     const PoolShape& shape, cudaStream_t stream) {
  const Tile tile = tile_of(shape);
  if (tile.rows == 0) return cudaErrorInvalidValue;
  const auto pieces = static_cast<unsigned>((shape.h + tile.rows - 1) / tile.rows);
  constexpr std::int64_t kMostPlanes = std::int64_t{1} << 30;
  const auto planes =
      static_cast<unsigned>(shape.planes < kMostPlanes ? shape.planes : kMostPlanes);
  const dim3 blocks(planes, pieces), threads(kRowLanes, kRowWarps);
  if (shape.window == 3 && shape.stride == 2)
    max_pool_backward<3, 2><<<blocks, threads, tile.shared, stream>>>(x, dy, dx, shape, tile.rows);
  else if (shape.window == 2 && shape.stride == 2)
    max_pool_backward<2, 2><<<blocks, threads, tile.shared, stream>>>(x, dy, dx, shape, tile.rows);
  else
    max_pool_backward<0, 0><<<blocks, threads, tile.shared, stream>>>(x, dy, dx, shape, tile.rows);
  return cudaGetLastError();
}

cudaError_t launch_average_pool_backward(const float* dy, float* dx, const PoolShape& shape,
                                         cudaStream_t stream) {
  const std::int64_t count = shape.planes * shape.h * shape.w;
  const int blocks = blocks_for(count);
  if (count < kFits32)
    average_pool_backward<std::uint32_t><<<blocks, kThreads, 0, stream>>>(dy, dx, shape);
  else average_pool_backward<std::uint64_t><<<blocks, kThreads, 0, stream>>>(dy, dx, shape);
  return cudaGetLastError();
}

}  // namespace superneurons
