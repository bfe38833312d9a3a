// Our own kernels without a library: each deterministic, asynchronous on `stream`, and returning
// the launch's status. Counts are elements; pointers may coincide where networks/operations.md says
// "in place".
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace superneurons {

cudaError_t launch_relu(const float* x, float* y, std::int64_t count, cudaStream_t stream);
/// dx = dy where y > 0, else 0.
cudaError_t launch_relu_backward(const float* y, const float* dy, float* dx, std::int64_t count,
                                 cudaStream_t stream);
/// y = a + b.
cudaError_t launch_add(const float* a, const float* b, float* y, std::int64_t count,
                       cudaStream_t stream);
/// y[i][k][j] += bias[k] for i < outer, k < channels, j < inner.
cudaError_t launch_add_bias(float* y, const float* bias, std::int64_t outer, std::int64_t channels,
                            std::int64_t inner, cudaStream_t stream);
/// sums[j] = sum over i < rows of x[i][j], in a fixed order.
cudaError_t launch_column_sums(const float* x, float* sums, std::int64_t rows, std::int64_t columns,
                               cudaStream_t stream);
/// to[i][j] = from[i][j] for j < width, rows at the pitches given (in floats).
cudaError_t launch_copy_rows(const float* from, std::int64_t from_pitch, float* to,
                             std::int64_t to_pitch, std::int64_t width, std::int64_t rows,
                             cudaStream_t stream);

/// mask[i] = dropout_keeps(key, training_step, i, rate); y = x / (1 - rate) where kept, else 0.
cudaError_t launch_dropout(const float* x, float* y, unsigned char* mask, std::int64_t count,
                           std::uint64_t key, std::uint64_t training_step, float rate,
                           cudaStream_t stream);
cudaError_t launch_dropout_backward(const float* dy, const unsigned char* mask, float* dx,
                                    std::int64_t count, float rate, cudaStream_t stream);

/// g' = g + weight_decay w; m = momentum m + g'; w = w - rate m.
cudaError_t launch_sgd(float* weight, const float* gradient, float* moment, std::int64_t count,
                       float rate, float momentum, float weight_decay, cudaStream_t stream);

/// Row-wise softmax and the mean of -log(probability of the label), summed in a fixed order. Labels
/// outside of the classes count as class 0.
cudaError_t launch_softmax_loss(const float* logits, const std::int32_t* labels,
                                float* probabilities, float* loss, std::int64_t rows, int classes,
                                cudaStream_t stream);
/// dlogits = (probabilities - one at the label) / rows.
cudaError_t launch_softmax_loss_backward(const float* probabilities, const std::int32_t* labels,
                                         float* dlogits, std::int64_t rows, int classes,
                                         cudaStream_t stream);

}  // namespace superneurons
