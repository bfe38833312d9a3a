// Model backend: predicts. An event-driven simulation of the host, the compute stream and the two
// copy streams; copies in both directions share the link, kernels slow down while copies run.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "ir/device_profile.h"
#include "simulator/backend.h"
#include "simulator/timeline.h"

namespace superneurons {

/// replay: the driver's own issue costs (profile). program: the traced program's host times
/// (op.host_ns, op.host_sync_ns), i.e. what the program itself would take with the plan, its device
/// times as if nobody traced it (simulator/program_time.h).
enum class Clock : std::uint8_t { replay, program };

struct ModelOptions {
  Clock clock = Clock::replay;
  bool keep_spans = false;
  std::vector<Bytes> fed{};  // inputs that are copied to the device before each training step, as
                             // ReplayBackend::feed() does; they count as compute
  const std::atomic<bool>* stop = nullptr;  // then simulations end with an Error cancelled
};

class ModelBackend : public Backend {
 public:
  /// Of the last training step that was executed; valid after sync(). It lasts from the end of the
  /// step before's last kernel to the end of its own, so a copy that the host issued ahead may have
  /// started before 0. Copies that outlive a step's last kernel cost time (Cause::tail) only where
  /// the next step waits for them; where a single training step was executed, it ends with its last
  /// copy. Poison counts as compute.
  virtual Timeline timeline() const = 0;
};

std::unique_ptr<ModelBackend> make_model_backend(const DeviceProfile& profile,
                                                 const ModelOptions& options = {});

/// Executes on the model until the step time settles: two consecutive training steps within 0.01 %,
/// or six in all. The timeline is the last one's.
Result<Timeline> simulate_program(const Trace& trace, const Program& program,
                                  const DeviceProfile& profile, const ModelOptions& options = {});

/// check → place → program → execute on the model for a few training steps, until steady.
/// Error does_not_fit or unlawful if the plan is not feasible in `plan.budget`.
Result<Timeline> simulate(const Trace& trace, const Plan& plan, const DeviceProfile& profile,
                          const ModelOptions& options = {});

}  // namespace superneurons
