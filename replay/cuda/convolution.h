// Convolutions through cuDNN: shared descriptors, algorithms by name, workspace sizes.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "replay/cuda/check.h"
#include "replay/cuda/convolution_shape.h"
#include "replay/cuda/engine.h"

namespace superneurons {

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

/// Descriptors of one shape and what was asked about it.
class Convolution {
 public:
  static Result<Convolution> make(const ConvolutionShape& shape);

  const ConvolutionShape& shape() const { return shape_; }
  cudnnTensorDescriptor_t x() const { return x_.get(); }
  cudnnTensorDescriptor_t y() const { return y_.get(); }
  cudnnFilterDescriptor_t weight() const { return weight_.get(); }
  /// fp32: plain FMA; tf32: cuDNN may use TensorFloat-32.
  cudnnConvolutionDescriptor_t math(bool tf32) const { return math_[tf32 ? 1 : 0].get(); }

  /// Workspace that an algorithm needs, or nothing if cuDNN does not support it. Asked once.
  std::optional<Bytes> need(cudnnHandle_t cudnn, Direction direction, int algorithm, bool tf32);

  /// The plan of an engine named in a choice, built on first use.
  Result<std::shared_ptr<const EnginePlan>> engine(cudnnHandle_t cudnn, Direction direction,
                                                   const EngineConfig& config);

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
  TensorOwner x_, y_;
  FilterOwner weight_;
  std::array<ConvolutionOwner, 2> math_;
  std::array<std::array<std::array<Need, 2>, 8>, 3> needs_;  // by direction, algorithm, tf32
  std::map<std::pair<Direction, std::string>, std::shared_ptr<const EnginePlan>> engines_;
};

/// One Convolution per distinct shape: deep networks repeat few shapes thousands of times.
class Convolutions {
 public:
  Result<std::shared_ptr<Convolution>> get(const ConvolutionShape& shape);

 private:
  std::map<ConvolutionShape, std::shared_ptr<Convolution>> made_;
};

}  // namespace superneurons
