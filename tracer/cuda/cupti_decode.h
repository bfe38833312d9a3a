// CUPTI's records as the values of activity_sink.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tracer/activity_sink.h"

namespace superneurons {

/// Gives all records of a buffer of `valid` bytes to `sink`.
void decode_activities(std::uint8_t* buffer, std::size_t valid, ActivitySink& sink) noexcept;

}  // namespace superneurons
