// Recording: runs a lowered network for real under keep_all and returns its trace with measured
// times.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

struct RecordOptions {
  bool on_cuda = false;
  int warmup_steps = 3;
  int traced_steps = 7;
  int untraced_steps = 20;          // for the true training-step time
  bool choices = true;              // measure every workspace choice, inside whole training steps
  Bytes workspace_limit{4096_MiB};  // choices that want more are left out
  std::uint64_t seed = 1;
  std::string origin;  // command line and date, for the trace's header
  std::function<void(const std::string&)> progress;  // one line per stage; may be empty
  const std::atomic<bool>* stop = nullptr;
};

/// "2026-11-30" (UTC), for origins of what is recorded or measured.
std::string today();

/// `lowered` comes from lower(); returns it with choices, durations (median over the traced
/// training steps), kernels, host issue times and step times. Errors: device, does_not_fit (the
/// network does not fit the device without a policy), cancelled.
Result<Trace> record(Trace lowered, const RecordOptions& options);

}  // namespace superneurons
