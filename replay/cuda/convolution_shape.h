// The shape of a convolution op, and its three directions.
#pragma once

#include <compare>
#include <cstdint>

#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

enum class Direction : std::uint8_t { forward, data, filter };

struct ConvolutionShape {
  int n = 0, c = 0, h = 0, w = 0, k = 0, r = 0, s = 0, stride = 0;
  int pad_h = 0, pad_w = 0, oh = 0, ow = 0;
  auto operator<=>(const ConvolutionShape&) const = default;

  // elements
  std::int64_t x() const { return std::int64_t{n} * c * h * w; }
  std::int64_t weight() const { return std::int64_t{k} * c * r * s; }
  std::int64_t y() const { return std::int64_t{n} * k * oh * ow; }
};
/// From attributes n c h w k r s stride pad (or pad_h pad_w) oh ow; Error naming a missing or unfit
/// one.
Result<ConvolutionShape> convolution_shape(const Op& op);

}  // namespace superneurons
