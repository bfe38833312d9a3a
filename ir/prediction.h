// What a simulator says of a plan, and the seam through which policies ask: they never include it.
#pragma once

#include <functional>

#include "ir/plan.h"
#include "ir/result.h"

namespace superneurons {

struct Prediction {
  Nanoseconds step_ns{};
  Bytes live_peak{};
  Bytes placed_peak{};
};
using Predict = std::function<Result<Prediction>(const Plan&)>;

}  // namespace superneurons
