// Recording: runs a lowered network for real and returns its trace with measured times. Under
// keep_all where that fits, else under the first fallback that does.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "ir/plan.h"
#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

/// A policy to record under where keep_all does not fit.
struct RecordFallback {
  std::string name;
  /// A plan within that much device memory in which each op takes its recorded choice. The trace
  /// has no times yet.
  std::function<Result<Plan>(const Trace& trace, Bytes memory)> plan;
};

struct RecordOptions {
  bool on_cuda = false;
  int warmup_steps = 3;
  int traced_steps = 7;
  int choice_steps = 0;             // measured per round of choices; 0: as traced_steps
  int untraced_steps = 20;          // for the true training-step time
  bool choices = true;              // measure every workspace choice, inside whole training steps
  Bytes workspace_limit{4096_MiB};  // choices that want more are left out
  Bytes device_memory{};  // to take at most; 0: what is free on a GPU, without limit on the host
  std::vector<RecordFallback> fallbacks;  // those that disturb times least come first
  std::uint64_t seed = 1;
  std::string origin;  // command line and date, for the trace's header
  std::function<void(const std::string&)> progress;  // one line per stage; may be empty
  const std::atomic<bool>* stop = nullptr;
};

/// "2026-11-30" (UTC), for origins of what is recorded or measured.
std::string today();

/// The median of the training steps after the warm-up; 0 where there are none.
Nanoseconds median_step(const std::vector<Nanoseconds>& steps, int warmup);

/// `lowered` comes from lower(); returns it with choices, durations (median over the traced
/// training steps), kernels, host issue times and step times. `origin` says under which plan where
/// that is not keep_all. A choice is measured once per kind and shape of op, inside whole training
/// steps; choices whose kernels fail are dropped. Errors: device, does_not_fit (the network fits
/// under no fallback either), cancelled.
Result<Trace> record(Trace lowered, const RecordOptions& options);

}  // namespace superneurons
