#include "replay/replay_backend.h"

#include <fmt/format.h>

#include <utility>

namespace superneurons {

Result<std::unique_ptr<ReplayBackend>> make_backend(std::unique_ptr<Kernels> kernels, bool on_cuda,
                                                    const ReplayBackendOptions& options) {
  if (!on_cuda) return make_host_backend(std::move(kernels), options);
#ifdef SUPERNEURONS_CUDA
  return make_cuda_backend(std::move(kernels), options);
#else
  return Error{ErrorCode::bad_usage, "this superneurons was built without CUDA (replay on host)"};
#endif
}

Error failed_at(const Error& error, const Trace& trace, const Command& command, int training_step) {
  if (error.code == ErrorCode::cancelled) return error;
  std::string what;
  switch (command.kind) {
    case CommandKind::run: {
      const Op& op = trace.ops[command.subject];
      what = fmt::format("op {} ({})", op.name, op.kind);
      break;
    }
    case CommandKind::copy_out:
      what = "offload of " + trace.tensors[command.subject].name;
      break;
    case CommandKind::copy_in:
      what = "prefetch of " + trace.tensors[command.subject].name;
      break;
    case CommandKind::poison:
      what = "poisoning of " + trace.tensors[command.subject].name;
      break;
  }
  Error named = error;
  named.message = fmt::format(
      "training step {}, plan step {}, {} on stream {}: {}", training_step, command.plan_step, what,
      kStreamNames[static_cast<std::size_t>(command.stream)], error.message);
  return named;
}

}  // namespace superneurons
