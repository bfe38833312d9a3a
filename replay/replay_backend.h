// ReplayBackend: a Backend with real memory: one arena of exactly the budget and a pinned host
// pool.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "replay/feed.h"
#include "replay/kernels.h"
#include "simulator/backend.h"
#include "simulator/timeline.h"

namespace superneurons {

/// How far a replay is, for whoever watches it from another thread.
struct ReplayProgress {
  std::atomic<std::int64_t> commands{0};  // of all training steps; 0 while it is not known
  std::atomic<std::int64_t> done{0};      // on a GPU: issued
};

struct ReplayBackendOptions {
  Bytes arena{};            // device memory taken, in one piece
  Bytes host_pool{};        // pinned memory taken, in one piece
  Bytes guard{};            // guard bytes around each device range, as given to place()
  bool stress = false;      // random delays on all streams (from the seed)
  bool keep_spans = false;  // time every command
  int spans_from = 0;       // of this training step and later ones
  std::uint64_t seed = 1;
  const std::atomic<bool>* stop = nullptr;  // once set, commands that have not begun are skipped
  ReplayProgress* progress = nullptr;
};

struct Measured {
  std::vector<Nanoseconds> steps;  // end-to-start time of each training step on the device
  Bytes peak{};  // end of the highest range handed to a kernel, a copy or initialise(), whole even
                 // if only part of it was accessed, rounded up to the unit
  Bytes host_peak{};
  Bytes outside{};  // device memory taken beyond arena and pool since just before the arena was:
                    // libraries, modules. The context is not in it: it exists before any memory
                    // can be measured, and other processes cannot be told from it
  std::vector<Span> spans;  // of the last training step, if kept
};

class ReplayBackend : public Backend {
 public:
  /// Fills a range with the first content of a tensor (replay/initial.h). Before prepare() or after
  /// it, and before the first training step.
  virtual Status initialise(const Trace& trace, TensorId tensor, Space space, Range range) = 0;
  /// New contents for ranges in which carried tensors live between training steps; at the start of
  /// a training step. Copied to the device on the compute stream, after all work of the steps
  /// before and before all that is issued later, as part of the step's measured time.
  virtual Status feed(std::vector<Fed> inputs) = 0;
  /// Order-independent 64-bit checksum of a range (replay/initial.h); after sync().
  virtual Result<std::uint64_t> checksum(Space space, Range range) = 0;
  /// Copies a small range to the caller (loss values); after sync().
  virtual Status read(Space space, Range range, std::byte* to) = 0;
  /// First guard byte that was overwritten, as an Error; Ok if guards are off. After sync().
  virtual Status check_guards() = 0;
  virtual Measured measured() const = 0;
};

/// Of one or the other, below. Error bad_usage for CUDA where this build has none.
Result<std::unique_ptr<ReplayBackend>> make_backend(std::unique_ptr<Kernels> kernels, bool on_cuda,
                                                    const ReplayBackendOptions& options);

/// The error of a command, told with training step, plan step, op or tensor, and stream.
Error failed_at(const Error& error, const Trace& trace, const Command& command, int training_step);

Result<std::unique_ptr<ReplayBackend>> make_host_backend(std::unique_ptr<Kernels> kernels,
                                                         const ReplayBackendOptions& options);
#ifdef SUPERNEURONS_CUDA
/// One plain cudaMalloc arena; three streams, events, one pinned pool. Error device if there is no
/// GPU, does_not_fit if there is not enough device or pinned memory (says how much there is).
Result<std::unique_ptr<ReplayBackend>> make_cuda_backend(std::unique_ptr<Kernels> kernels,
                                                         const ReplayBackendOptions& options);
#endif

}  // namespace superneurons
