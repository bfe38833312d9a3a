// How native CUDA kernels are made: one row per op kind, each turning an op into a runner.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "replay/cuda/attributes.h"
#include "replay/cuda/convolution.h"
#include "replay/kernels.h"

namespace superneurons {

/// What runners share. The handles issue to `stream`.
struct Libraries {
  CudnnOwner cudnn;
  CublasOwner cublas;
  cudaStream_t stream = nullptr;
  Convolutions convolutions;
};

/// An op bound to its descriptors and constants; issues its kernels to Libraries::stream.
using Runner = std::function<Status(const KernelCall&)>;

struct Making {
  const Trace& trace;
  OpId id;
  std::uint64_t seed;
  Libraries& libraries;

  const Op& op() const { return trace[id]; }
};

/// Ok if writes of the op are exactly these and its reads begin with these.
inline Status expect(const Making& making, const std::vector<Expected>& reads,
                     const std::vector<Expected>& writes) {
  if (Status good = expect_operands(making.trace, making.op().reads, "reads", reads, true); !good)
    return good;
  return expect_operands(making.trace, making.op().writes, "writes", writes, false);
}

struct NativeKernel {
  std::string_view kind;
  Result<Runner> (*make)(const Making&);
};

// Kinds and operands: networks/operations.md.
std::span<const NativeKernel> convolution_kernels();
std::span<const NativeKernel> linear_kernels();
std::span<const NativeKernel> elementwise_kernels();
std::span<const NativeKernel> spatial_kernels();  // pooling, LRN, batch norm
std::span<const NativeKernel> loss_kernels();

inline const float* input(const KernelCall& call, std::size_t index) {
  return reinterpret_cast<const float*>(call.reads[index]);
}
inline float* output(const KernelCall& call, std::size_t index) {
  return reinterpret_cast<float*>(call.writes[index]);
}

}  // namespace superneurons
