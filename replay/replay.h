// Replay: runs a plan for real, compares its results to the bit with those of a reference, and puts
// predicted beside measured.
#pragma once

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ir/device_profile.h"
#include "ir/plan.h"
#include "ir/result.h"
#include "replay/replay_backend.h"
#include "simulator/outcome.h"

namespace superneurons {

enum class KernelSet : std::uint8_t { native, verify, timed };

struct ReplayOptions {
  bool on_cuda = false;
  KernelSet kernels = KernelSet::native;
  int training_steps = 3;
  int warmup_steps = 1;  // of training_steps; not counted in measured_step_ns
  std::uint64_t seed = 1;
  bool stress = false;
  bool guards = false;
  bool keep_spans = false;  // times every command of the last training step, which may slow that
  const InputSource* inputs = nullptr;  // none: the inputs keep their first content
  bool keep_values = false;             // fills Run::values
  const std::atomic<bool>* stop = nullptr;
  ReplayProgress* progress = nullptr;
};

/// Checksums of parameters, buffers and optimizer state after the last training step; where a trace
/// has no tensors with those roles, of all that the next training step needs.
struct Checksums {
  std::vector<TensorId> tensors;  // `end`s of carries, in order of trace.carry; may be empty
  std::vector<std::uint64_t> values;
};

/// Whether a tensor that is carried on is a parameter, a buffer or optimizer state.
bool has_state(const Trace& trace);

struct Run {
  Checksums checksums;
  Measured measured;
  std::vector<float> losses;  // per training step: first float of the tensor named "loss", as its
                              // op wrote it; empty if there is none or kernels are surrogates
  /// With keep_values: contents of all carried tensors after the last training step.
  std::vector<std::pair<TensorId, std::vector<std::byte>>> values;
};

/// Checks the plan and runs it in an arena of exactly plan.budget.device. With options.guards
/// ranges are padded and the arena grows by the padding. Errors: unlawful, does_not_fit (budget, or
/// memory of this machine), bad_input (kernels refuse an op), device (a kernel failed, a guard was
/// overwritten), cancelled.
Result<Run> run_plan(const Trace& trace, const Plan& plan, const ReplayOptions& options);

/// The same without check(): shows what a broken plan does. It must still place.
Result<Run> run_unchecked_plan(const Trace& trace, const Plan& plan, const ReplayOptions& options);

/// The first training step whose losses differ in any bit, counted from 0, or nothing. Of curves
/// of different lengths: the first that one of them lacks.
std::optional<std::size_t> difference(const std::vector<float>& reference,
                                      const std::vector<float>& losses);

/// First difference as "NAME: 0123... where the reference has 4567...", or "" if equal.
std::string difference(const Trace& trace, const Checksums& reference, const Checksums& run);

}  // namespace superneurons
