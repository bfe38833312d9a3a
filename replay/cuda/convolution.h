// Convolutions through cuDNN: shared descriptors, algorithms by name, workspace sizes.
#pragma once

#include <array>
#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "ir/trace.h"
#include "replay/cuda/check.h"

namespace superneurons {

enum class Direction : std::uint8_t { forward, data, filter };

/// An algorithm of one direction, by cuDNN's number and by the name that traces use
/// ("WINOGRAD_NONFUSED", "ALGO_1"). The others add up in an order that changes from run to run.
struct ConvolutionAlgorithm {
  std::string_view name;
  int number = 0;
  bool deterministic = true;
};
std::span<const ConvolutionAlgorithm> convolution_algorithms(Direction direction);
const ConvolutionAlgorithm* find_algorithm(Direction direction, std::string_view name);
const ConvolutionAlgorithm* find_algorithm(Direction direction, int number);

struct ConvolutionShape {
  int n = 0, c = 0, h = 0, w = 0, k = 0, r = 0, s = 0, stride = 0, pad = 0, oh = 0, ow = 0;
  auto operator<=>(const ConvolutionShape&) const = default;

  // elements
  std::int64_t x() const { return std::int64_t{n} * c * h * w; }
  std::int64_t weight() const { return std::int64_t{k} * c * r * s; }
  std::int64_t y() const { return std::int64_t{n} * k * oh * ow; }
};
/// From attributes n c h w k r s stride pad oh ow; Error naming a missing or unfit one.
Result<ConvolutionShape> convolution_shape(const Op& op);

/// Descriptors of one shape and what was asked about it.
class Convolution {
 public:
  static Result<Convolution> make(const ConvolutionShape& shape);

  const ConvolutionShape& shape() const { return shape_; }
  cudnnTensorDescriptor_t x() const { return x_.get(); }
  cudnnTensorDescriptor_t y() const { return y_.get(); }
  cudnnTensorDescriptor_t bias() const { return bias_.get(); }
  cudnnFilterDescriptor_t weight() const { return weight_.get(); }
  /// fp32: plain FMA; tf32: cuDNN may use TensorFloat-32.
  cudnnConvolutionDescriptor_t math(bool tf32) const { return math_[tf32 ? 1 : 0].get(); }

  /// Workspace that an algorithm needs, or nothing if cuDNN does not support it. Asked once.
  std::optional<Bytes> need(cudnnHandle_t cudnn, Direction direction, int algorithm, bool tf32);

  /// first x weight -> out; x or weight is replaced by dy as in Conv2dBackward*:
  /// forward (x, weight) -> y; data (weight, dy) -> dx; filter (x, dy) -> dweight.
  Status run(cudnnHandle_t cudnn, Direction direction, int algorithm, bool tf32, const void* first,
             const void* second, void* out, void* workspace, Bytes bytes) const;

 private:
  struct Need {
    bool asked = false;
    std::optional<Bytes> bytes;
  };
  ConvolutionShape shape_;
  TensorOwner x_, y_, bias_;
  FilterOwner weight_;
  std::array<ConvolutionOwner, 2> math_;
  std::array<std::array<std::array<Need, 2>, 8>, 3> needs_;  // by direction, algorithm, tf32
};

/// One Convolution per distinct shape: deep networks repeat few shapes thousands of times.
class Convolutions {
 public:
  Result<std::shared_ptr<Convolution>> get(const ConvolutionShape& shape);

 private:
  std::map<ConvolutionShape, std::shared_ptr<Convolution>> made_;
};

}  // namespace superneurons
