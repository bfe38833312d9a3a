// Training steps of a lowered network under one plan, with what each op took.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ir/plan.h"
#include "replay/replay_backend.h"
#include "tracer/activity.h"
#include "tracer/record.h"

namespace superneurons {

struct PassOptions {
  int steps = 1;
  int warmup = 0;        // of steps: not counted in `losses`
  bool traced = false;   // by CUPTI, on CUDA
  bool lenient = false;  // go on where the kernels of a choice fail
};

/// A choice that failed in a lenient pass. What came after it in that pass computed with garbage.
struct FailedChoice {
  OpId op;
  std::uint32_t choice = 0;
};

/// What one sequence of training steps gave. Of ops that the plan runs again, only the first run of
/// a training step is measured.
struct Pass {
  Measured measured;
  std::vector<std::vector<Nanoseconds>> issue;  // [training step][op]: the host's time to issue it,
                                                // which on the host is the time of the op itself
  Attribution device;                           // traced passes on CUDA only
  Losses losses;
  ActivityLog log;
  std::vector<FailedChoice> failed;

  /// Device time of one op in each training step from `warmup` on in which it was seen.
  std::vector<Nanoseconds> spans(std::size_t op, int warmup, bool on_cuda) const;
};

/// Runs passes on one arena and one set of kernels, which on CUDA are made once: libraries, modules
/// and plans of cuDNN take seconds to come up.
class Passes {
 public:
  /// Makes a plan in which every op takes its recorded choice, within that much device memory.
  using MakePlan = std::function<Result<Plan>(const Trace& trace, Bytes memory)>;

  /// `options` and `make_plan` must outlive it.
  Passes(const RecordOptions& options, const MakePlan& make_plan, Bytes memory);
  ~Passes();

  /// Plans, and takes the arena for it. Error does_not_fit.
  Status reserve(const Trace& trace);
  /// With these choices: under the plan of reserve() where that still places, else under a new one.
  Result<Pass> run(const Trace& trace, const std::vector<std::uint32_t>& choice_of,
                   const PassOptions& pass);
  const std::string& policy() const { return plan_.policy; }

 private:
  class TimedKernels;
  struct Sink;
  struct Placed;
  Result<Placed> placed(const Trace& trace, const std::vector<std::uint32_t>& choice_of);
  Status take(const Placed& placed);

  const RecordOptions& options_;
  const MakePlan& make_plan_;
  Bytes memory_;
  Plan plan_;
  Bytes arena_{}, pool_{};
  std::unique_ptr<Sink> sink_;
  std::unique_ptr<ReplayBackend> backend_;
};

}  // namespace superneurons
