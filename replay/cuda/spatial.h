// Our own pooling and local response normalisation: deterministic, asynchronous on `stream`.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace superneurons {

struct PoolShape {
  std::int64_t planes = 0;  // n * c
  int h = 0, w = 0, window = 0, stride = 0, pad = 0, oh = 0, ow = 0;
};

cudaError_t launch_max_pool(const float* x, float* y, const PoolShape& shape, cudaStream_t stream);
/// Each gradient goes to the first maximum of its window. (cuDNN does not say which one it takes.)
cudaError_t launch_max_pool_backward(const float* x, const float* dy, float* dx,
                                     const PoolShape& shape, cudaStream_t stream);
/// Whether the windows over one row fit the shared memory that max_pool_backward takes.
bool max_pool_backward_fits(const PoolShape& shape);
/// Padding does not count.
cudaError_t launch_average_pool(const float* x, float* y, const PoolShape& shape,
                                cudaStream_t stream);
cudaError_t launch_average_pool_backward(const float* dy, float* dx, const PoolShape& shape,
                                         cudaStream_t stream);

/// Across channels: y = x / s^beta, s = k + alpha / size * sum of x^2 over `size` channels.
struct LrnShape {
  std::int64_t n = 0, hw = 0;
  int c = 0;
  int size = 5;  // odd, 3 to 9
  float alpha = 0, beta = 0, k = 0;
};
inline bool lrn_size_supported(int size) { return size >= 3 && size <= 9 && size % 2 == 1; }

cudaError_t launch_lrn(const float* x, float* y, const LrnShape& shape, cudaStream_t stream);
/// dx may be dy. y is computed again, which costs less than to read it.
cudaError_t launch_lrn_backward(const float* x, const float* dy, float* dx, const LrnShape& shape,
                                cudaStream_t stream);

}  // namespace superneurons
