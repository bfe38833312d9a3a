// Sums over the channels of NCHW images and batch normalisation: our own, since cuDNN's are at a
// fraction of the memory bandwidth. Deterministic, asynchronous on `stream`.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace superneurons {

/// sums[c] = sum over images and pixels of x[n][c][hw], in a fixed order.
cudaError_t launch_channel_sums(const float* x, float* sums, int n, int c, std::int64_t hw,
                                cudaStream_t stream);

struct BatchNormShape {
  int n = 0, c = 0;
  std::int64_t hw = 0;
  float epsilon = 0, momentum = 0;
};
/// With fewer values per channel (n * hw) there is no room for a partial sum where it is kept.
inline constexpr std::int64_t kLeastBatchNormValues = 4;

/// Partial sums lie in y before y is written, so y must not be x. Running statistics (the variance
/// unbiased) move unless their pointers are null.
cudaError_t launch_batch_norm(const float* x, const float* gamma, const float* beta, float* y,
                              float* save_mean, float* save_invstd, float* running_mean,
                              float* running_var, const BatchNormShape& shape, cudaStream_t stream);
/// As above, with the partial sums in dx, which must be neither x nor dy.
cudaError_t launch_batch_norm_backward(const float* x, const float* dy, const float* gamma,
                                       const float* save_mean, const float* save_invstd, float* dx,
                                       float* dgamma, float* dbeta, const BatchNormShape& shape,
                                       cudaStream_t stream);

}  // namespace superneurons
