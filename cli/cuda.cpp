// Whether there is a GPU to use.
#include <fmt/format.h>

#include "cli/session.h"
#ifdef SUPERNEURONS_CUDA
#include <cuda_runtime_api.h>

#include "replay/cuda/choices.h"
#include "tracer/calibrate.h"
#endif

namespace superneurons {

Result<bool> wants_cuda(const std::string& on) {
  if (on == "host") return false;
  if (!on.empty() && on != "cuda")
    return Error{.code = ErrorCode::bad_usage,
                 .message = fmt::format("--on '{}' is neither host nor cuda", on)};
#ifdef SUPERNEURONS_CUDA
  int devices = 0;
  const cudaError_t found = cudaGetDeviceCount(&devices);
  if (found == cudaSuccess && devices > 0) return true;
  if (on.empty()) return false;
  return Error{
      .code = ErrorCode::device,
      .message = fmt::format("no usable GPU: {} (use --on host)",
                             found == cudaSuccess ? "none found" : cudaGetErrorString(found))};
#else
  if (on.empty()) return false;
  return Error{.code = ErrorCode::device,
               .message =
                   "this build has no CUDA backend (CUDA, cuDNN and CUPTI were not found when it "
                   "was configured; use --on host)"};
#endif
}

Status take_machine_kernels([[maybe_unused]] Trace& trace) {
#ifdef SUPERNEURONS_CUDA
  constexpr Bytes kMostWorkspace = 64_MiB;  // of an op; cuBLAS wants 32
  Trace offered = trace;
  if (Status status = enumerate_choices(offered, kMostWorkspace, false); !status) return status;
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const Choice old = trace.ops[i].choices[trace.ops[i].recorded];
    Choice taken = offered.ops[i].choices[offered.ops[i].recorded];
    if (!old.algorithm.empty() || taken.algorithm.empty()) continue;
    taken.ns = old.ns;
    trace.ops[i].choices = {std::move(taken)};
    trace.ops[i].recorded = 0;
  }
#endif
  return Ok{};
}

std::string machine_versions([[maybe_unused]] bool on_cuda) {
#ifdef SUPERNEURONS_CUDA
  if (on_cuda) return cuda_versions();
#endif
  return "host backend";
}

std::string machine_device(bool on_cuda) {
  const std::string versions = machine_versions(on_cuda);
  return on_cuda ? versions.substr(0, versions.find(',')) : "host";
}

}  // namespace superneurons
