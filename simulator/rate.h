// How fast a network trains.
#pragma once

#include <cstdint>

#include "ir/units.h"

namespace superneurons {

/// Of training steps that take `step` each; 0 where that is 0.
inline double images_per_second(std::int64_t batch, Nanoseconds step) {
  return step > 0_ns ? static_cast<double>(batch) * 1e9 / static_cast<double>(step.count) : 0;
}

}  // namespace superneurons
