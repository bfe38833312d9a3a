#include <cfloat>

#include "replay/cuda/elementwise.h"
#include "replay/cuda/launch.cuh"

namespace superneurons {
namespace {

/// Largest value of the block, in every thread. blockDim.x is a power of two.
__device__ float block_max(float value) {
  __shared__ float partial[1024];
  __syncthreads();
  partial[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half)
      partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + half]);
    __syncthreads();
  }
  return partial[0];
}

__global__ void softmax(const float* logits, float* probabilities, std::int64_t rows, int classes) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const float* in = logits + row * classes;
    float* out = probabilities + row * classes;
    float most = -FLT_MAX;
    for (int i = static_cast<int>(threadIdx.x); i < classes; i += static_cast<int>(blockDim.x))
      most = fmaxf(most, in[i]);
    most = block_max(most);
    float sum = 0;
    for (int i = static_cast<int>(threadIdx.x); i < classes; i += static_cast<int>(blockDim.x))
      sum += expf(in[i] - most);
    sum = block_sum(sum);
    for (int i = static_cast<int>(threadIdx.x); i < classes; i += static_cast<int>(blockDim.x))
      out[i] = expf(in[i] - most) / sum;
  }
}

__device__ int label_of(const std::int32_t* labels, std::int64_t row, int classes) {
  const std::int32_t label = labels[row];
  return label >= 0 && label < classes ? label : 0;
}

/// One block: thread t adds rows t, t + 256, ...; then the threads add up as a tree.
__global__ void mean_loss(const float* probabilities, const std::int32_t* labels, float* loss,
                          std::int64_t rows, int classes) {
  float sum = 0;
  for (std::int64_t row = threadIdx.x; row < rows; row += blockDim.x)
    sum -= logf(fmaxf(probabilities[row * classes + label_of(labels, row, classes)], FLT_MIN));
  sum = block_sum(sum);
  if (threadIdx.x == 0) *loss = sum / static_cast<float>(rows);
}

__global__ void softmax_backward(const float* probabilities, const std::int32_t* labels,
                                 float* dlogits, std::int64_t rows, int classes) {
  const float scale = 1.0F / static_cast<float>(rows);
  const std::int64_t count = rows * classes;
  for (std::int64_t i = first_item(); i < count; i += item_stride()) {
    const std::int64_t row = i / classes;
    const float target = i % classes == label_of(labels, row, classes) ? 1.0F : 0.0F;
    dlogits[i] = (probabilities[i] - target) * scale;
  }
}

}  // namespace

cudaError_t launch_softmax_loss(const float* logits, const std::int32_t* labels,
                                float* probabilities, float* loss, std::int64_t rows, int classes,
                                cudaStream_t stream) {
  softmax<<<blocks_for(rows, 1), kThreads, 0, stream>>>(logits, probabilities, rows, classes);
  mean_loss<<<1, kThreads, 0, stream>>>(probabilities, labels, loss, rows, classes);
  return cudaGetLastError();
}

cudaError_t launch_softmax_loss_backward(const float* probabilities, const std::int32_t* labels,
                                         float* dlogits, std::int64_t rows, int classes,
                                         cudaStream_t stream) {
  softmax_backward<<<blocks_for(rows * classes), kThreads, 0, stream>>>(probabilities, labels,
                                                                        dlogits, rows, classes);
  return cudaGetLastError();
}

}  // namespace superneurons
