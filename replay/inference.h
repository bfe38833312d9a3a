// What a trained network gets right: its forward ops alone, on the host, whatever it was trained
// on.
#pragma once

#include <atomic>
#include <cstdint>

#include "ir/result.h"
#include "ir/trace.h"
#include "replay/data_set.h"
#include "replay/replay.h"

namespace superneurons {

struct Accuracy {
  std::int64_t correct = 0, images = 0;
};

/// Classifies the test images with the parameters and buffers that the run ended with (its
/// options had keep_values): batch norm by running statistics, nothing dropped, all on the host's
/// native kernels. Error bad_usage without values, bad_input where the host has no kernel for a
/// forward op, cancelled.
Result<Accuracy> test_accuracy(const Trace& trace, const Run& run, const DataSet& data,
                               const std::atomic<bool>* stop = nullptr);

}  // namespace superneurons
