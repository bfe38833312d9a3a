#include "replay/loss_probe.h"

#include <cstring>
#include <optional>
#include <utility>

#ifdef SUPERNEURONS_CUDA
#include "replay/cuda/memory_kernels.h"
#endif

namespace superneurons {
namespace {

struct Site {
  std::uint32_t op = 0;
  std::size_t write = 0;  // index among its writes
};

/// The last op that writes the tensor named "loss" from its first byte on.
std::optional<Site> loss_site(const Trace& trace) {
  std::optional<Site> site;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i)
    for (std::size_t w = 0; w < trace.ops[i].writes.size(); ++w) {
      const Access& write = trace.ops[i].writes[w];
      if (trace[write.tensor].name == "loss" && write.offset == 0_B && write.length >= 4_B)
        site = Site{i, w};
    }
  return site;
}

class LossProbe final : public Kernels {
 public:
  LossProbe(std::unique_ptr<Kernels> kernels, Site site, bool on_cuda, Losses& losses)
      : kernels_(std::move(kernels)), site_(site), on_cuda_(on_cuda), losses_(losses) {
#ifdef SUPERNEURONS_CUDA
    if (!on_cuda) return;
    void* mapped = nullptr;
    pinned_ =
        cudaHostRegister(losses.values.data(), bytes(), cudaHostRegisterMapped) == cudaSuccess;
    if (pinned_ && cudaHostGetDevicePointer(&mapped, losses.values.data(), 0) == cudaSuccess)
      mapped_ = static_cast<float*>(mapped);
    // Copies to memory that is not mapped work too, but hold up the issuing thread.
    if (mapped_ == nullptr) cudaGetLastError();  // forget it
#endif
  }
  ~LossProbe() override {
#ifdef SUPERNEURONS_CUDA
    if (pinned_) cudaHostUnregister(losses_.values.data());
#endif
  }

  Status prepare(const Trace& trace, std::uint64_t seed) override {
    return kernels_->prepare(trace, seed);
  }
  Bytes outside_bytes() const override { return kernels_->outside_bytes(); }

  Status run(const KernelCall& call, void* stream) override {
    if (Status status = kernels_->run(call, stream); !status) return status;
    if (call.op.index != site_.op || call.rerun) return Ok{};
    const std::byte* const loss = call.writes[site_.write];
    const auto step = static_cast<std::size_t>(call.training_step);
    if (loss == nullptr || step >= losses_.values.size()) return Ok{};
    return copy(step, loss, stream);
  }

 private:
  std::size_t bytes() const { return losses_.values.size() * sizeof(float); }

  Status copy(std::size_t step, const std::byte* from, [[maybe_unused]] void* stream) const {
    float* const to = &losses_.values[step];
    if (!on_cuda_) {
      std::memcpy(to, from, sizeof *to);
      return Ok{};
    }
#ifdef SUPERNEURONS_CUDA
    auto* const queue = static_cast<cudaStream_t>(stream);
    const cudaError_t error =
        mapped_ != nullptr
            ? launch_store(mapped_ + step, reinterpret_cast<const float*>(from), queue)
            : cudaMemcpyAsync(to, from, sizeof *to, cudaMemcpyDeviceToHost, queue);
    if (error != cudaSuccess)
      return Error{ErrorCode::device,
                   std::string("reading the loss: ") + cudaGetErrorString(error)};
#endif
    return Ok{};
  }

  std::unique_ptr<Kernels> kernels_;
  Site site_;
  bool on_cuda_;
  [[maybe_unused]] bool pinned_ = false;
  [[maybe_unused]] float* mapped_ = nullptr;  // the losses, as the device addresses them
  Losses& losses_;
};

}  // namespace

std::unique_ptr<Kernels> probe_loss(std::unique_ptr<Kernels> kernels, const Trace& trace,
                                    int training_steps, bool on_cuda, Losses& losses) {
  const std::optional<Site> site = loss_site(trace);
  if (!site) return kernels;
  losses.values.assign(static_cast<std::size_t>(training_steps), 0.0F);
  return std::make_unique<LossProbe>(std::move(kernels), *site, on_cuda, losses);
}

}  // namespace superneurons
