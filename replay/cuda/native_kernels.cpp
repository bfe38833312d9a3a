#include <fmt/format.h>

#include <array>

#include "replay/cuda/native.h"

namespace superneurons {
namespace {

Result<NativeKernel> find_kernel(const Op& op) {
  const std::array<std::span<const NativeKernel>, 5> tables = {
      convolution_kernels(), linear_kernels(), elementwise_kernels(), spatial_kernels(),
      loss_kernels()};
  for (const auto& table : tables)
    for (const NativeKernel& row : table)
      if (row.kind == op.kind) return row;
  return Error{.code = ErrorCode::bad_usage,
               .message = "no native CUDA kernel of this kind (surrogate kernels run any op)"};
}

class CudaNativeKernels final : public Kernels {
 public:
  Status prepare(const Trace& trace, std::uint64_t seed) override;
  Status run(const KernelCall& call, void* stream) override;
  Bytes outside_bytes() const override { return outside_; }

 private:
  Status open();
  Libraries libraries_;
  Bytes outside_{};
  std::vector<Runner> runners_;
};

Status CudaNativeKernels::open() {
  if (libraries_.cudnn != nullptr) return Ok{};
  std::size_t before = 0, after = 0, total = 0;
  SUPERNEURONS_TRY(cudaMemGetInfo(&before, &total));
  cudnnHandle_t cudnn = nullptr;
  SUPERNEURONS_TRY(cudnnCreate(&cudnn));
  libraries_.cudnn.reset(cudnn);
  cublasHandle_t cublas = nullptr;
  SUPERNEURONS_TRY(cublasCreate(&cublas));
  libraries_.cublas.reset(cublas);
  SUPERNEURONS_TRY(cudaMemGetInfo(&after, &total));
  outside_ = {static_cast<std::int64_t>(before) - static_cast<std::int64_t>(after)};
  return Ok{};
}

Status CudaNativeKernels::prepare(const Trace& trace, std::uint64_t seed) {
  if (Status opened = open(); !opened) return opened;
  runners_.clear();
  runners_.reserve(trace.ops.size());
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    const auto refuse = [&](Error error) {
      error.message = fmt::format("{} ({}): {}", op.name, op.kind, error.message);
      return error;
    };
    for (const Choice& choice : op.choices) {
      if (!choice.omits.empty())
        return refuse({.code = ErrorCode::bad_usage,
                       .message = "native kernels write all outputs, none is omitted"});
    }
    const auto kernel = find_kernel(op);
    if (!kernel) return refuse(kernel.error());
    auto runner = kernel->make({trace, {i}, seed, libraries_});
    if (!runner) return refuse(runner.error());
    runners_.push_back(std::move(*runner));
  }
  return Ok{};
}

Status CudaNativeKernels::run(const KernelCall& call, void* stream) {
  auto* const wanted = static_cast<cudaStream_t>(stream);
  if (wanted != libraries_.stream) {
    SUPERNEURONS_TRY(cudnnSetStream(libraries_.cudnn.get(), wanted));
    SUPERNEURONS_TRY(cublasSetStream(libraries_.cublas.get(), wanted));
    libraries_.stream = wanted;
  }
  return runners_[call.op.index](call);
}

}  // namespace

std::unique_ptr<Kernels> make_cuda_native_kernels() {
  return std::make_unique<CudaNativeKernels>();
}

}  // namespace superneurons
