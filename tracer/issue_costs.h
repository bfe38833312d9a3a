// What the host needs to issue an op of each kind by the native kernels.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "ir/device_profile.h"
#include "ir/result.h"

namespace superneurons {

/// Median host time by kind of op, and the kernels it launched, over training steps of small_cnn,
/// which has every kind: its kernels are so short that the host never waits for room in a queue.
/// Errors as record().
Result<std::map<std::string, IssueCost>> measure_issue_costs(bool on_cuda,
                                                             const std::atomic<bool>* stop);

}  // namespace superneurons
