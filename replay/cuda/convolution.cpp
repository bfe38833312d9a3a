#include "replay/cuda/convolution.h"

#include "replay/cuda/attributes.h"

namespace superneurons {
namespace {

constexpr ConvolutionAlgorithm kForward[] = {
    {"IMPLICIT_PRECOMP_GEMM", CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM},
    {"IMPLICIT_GEMM", CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM},
    {"GEMM", CUDNN_CONVOLUTION_FWD_ALGO_GEMM},
    {"DIRECT", CUDNN_CONVOLUTION_FWD_ALGO_DIRECT},
    {"FFT", CUDNN_CONVOLUTION_FWD_ALGO_FFT},
    {"FFT_TILING", CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING},
    {"WINOGRAD", CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD},
    {"WINOGRAD_NONFUSED", CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED},
};
constexpr ConvolutionAlgorithm kData[] = {
    {"ALGO_1", CUDNN_CONVOLUTION_BWD_DATA_ALGO_1},
    {"ALGO_0", CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, false},
    {"FFT", CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT},
    {"FFT_TILING", CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING},
    {"WINOGRAD", CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD},
    {"WINOGRAD_NONFUSED", CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED},
};
constexpr ConvolutionAlgorithm kFilter[] = {
    {"ALGO_1", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1},
    {"ALGO_0", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, false},
    {"ALGO_3", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, false},
    {"FFT", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT},
    {"FFT_TILING", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING},
    {"WINOGRAD", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD},
    {"WINOGRAD_NONFUSED", CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED},
};

const float kOne = 1, kZero = 0;

Result<TensorOwner> make_tensor(int n, int c, int h, int w) {
  cudnnTensorDescriptor_t made = nullptr;
  SUPERNEURONS_TRY(cudnnCreateTensorDescriptor(&made));
  TensorOwner owner(made);
  SUPERNEURONS_TRY(
      cudnnSetTensor4dDescriptor(made, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, n, c, h, w));
  return owner;
}

Result<FilterOwner> make_filter(const ConvolutionShape& shape) {
  cudnnFilterDescriptor_t made = nullptr;
  SUPERNEURONS_TRY(cudnnCreateFilterDescriptor(&made));
  FilterOwner owner(made);
  SUPERNEURONS_TRY(cudnnSetFilter4dDescriptor(made, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, shape.k,
                                              shape.c, shape.r, shape.s));
  return owner;
}

Result<ConvolutionOwner> make_math(const ConvolutionShape& shape, bool tf32) {
  cudnnConvolutionDescriptor_t made = nullptr;
  SUPERNEURONS_TRY(cudnnCreateConvolutionDescriptor(&made));
  ConvolutionOwner owner(made);
  SUPERNEURONS_TRY(cudnnSetConvolution2dDescriptor(made, shape.pad_h, shape.pad_w, shape.stride,
                                                   shape.stride, 1, 1, CUDNN_CROSS_CORRELATION,
                                                   CUDNN_DATA_FLOAT));
  SUPERNEURONS_TRY(cudnnSetConvolutionMathType(made, tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH));
  return owner;
}

}  // namespace

std::span<const ConvolutionAlgorithm> convolution_algorithms(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return kForward;
    case Direction::data:
      return kData;
    case Direction::filter:
      break;
  }
  return kFilter;
}

const ConvolutionAlgorithm* find_algorithm(Direction direction, std::string_view name) {
  for (const ConvolutionAlgorithm& each : convolution_algorithms(direction))
    if (each.name == name) return &each;
  return nullptr;
}

const ConvolutionAlgorithm* find_algorithm(Direction direction, int number) {
  for (const ConvolutionAlgorithm& each : convolution_algorithms(direction))
    if (each.number == number) return &each;
  return nullptr;
}

Result<ConvolutionShape> convolution_shape(const Op& op) {
  OpAttributes get(op);
  ConvolutionShape shape{get.count("n"),       get.count("c"),      get.count("h"),
                         get.count("w"),       get.count("k"),      get.count("r"),
                         get.count("s"),       get.count("stride"), get.padding("pad_h"),
                         get.padding("pad_w"), get.count("oh"),     get.count("ow")};
  if (get.fault()) return *get.fault();
  if (capped_product({shape.n, shape.c, shape.h, shape.w}) == kTooMany ||
      capped_product({shape.k, shape.c, shape.r, shape.s}) == kTooMany ||
      capped_product({shape.n, shape.k, shape.oh, shape.ow}) == kTooMany) {
    return Error{.code = ErrorCode::bad_input, .message = "a tensor of more than 2^40 elements"};
  }
  return shape;
}

Result<Convolution> Convolution::make(const ConvolutionShape& shape) {
  Convolution made;
  made.shape_ = shape;
  auto x = make_tensor(shape.n, shape.c, shape.h, shape.w);
  auto y = make_tensor(shape.n, shape.k, shape.oh, shape.ow);
  auto weight = make_filter(shape);
  if (!x) return x.error();
  if (!y) return y.error();
  if (!weight) return weight.error();
  made.x_ = std::move(*x);
  made.y_ = std::move(*y);
  made.weight_ = std::move(*weight);
  for (bool tf32 : {false, true}) {
    auto math = make_math(shape, tf32);
    if (!math) return math.error();
    made.math_[tf32 ? 1 : 0] = std::move(*math);
  }
  return made;
}

std::optional<Bytes> Convolution::need(cudnnHandle_t cudnn, Direction direction, int algorithm,
                                       bool tf32) {
  Need& need = needs_[static_cast<std::size_t>(direction)][static_cast<std::size_t>(algorithm)]
                     [tf32 ? 1 : 0];
  if (need.asked) return need.bytes;
  need.asked = true;
  std::size_t bytes = 0;
  cudnnStatus_t status = CUDNN_STATUS_NOT_SUPPORTED;
  switch (direction) {
    case Direction::forward:
      status = cudnnGetConvolutionForwardWorkspaceSize(
          cudnn, x(), weight(), math(tf32), y(), static_cast<cudnnConvolutionFwdAlgo_t>(algorithm),
          &bytes);
      break;
    case Direction::data:
      status = cudnnGetConvolutionBackwardDataWorkspaceSize(
          cudnn, weight(), y(), math(tf32), x(),
          static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm), &bytes);
      break;
    case Direction::filter:
      status = cudnnGetConvolutionBackwardFilterWorkspaceSize(
          cudnn, x(), y(), math(tf32), weight(),
          static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm), &bytes);
      break;
  }
  if (status == CUDNN_STATUS_SUCCESS) need.bytes = Bytes{static_cast<std::int64_t>(bytes)};
  return need.bytes;
}

Result<std::shared_ptr<const EnginePlan>> Convolution::engine(cudnnHandle_t cudnn,
                                                              Direction direction,
                                                              const EngineConfig& config) {
  std::shared_ptr<const EnginePlan>& slot = engines_[{direction, engine_name(config)}];
  if (slot == nullptr) {
    auto made = EnginePlan::make(cudnn, shape_, direction, config);
    if (!made) return made.error();
    slot = std::make_shared<const EnginePlan>(std::move(*made));
  }
  return slot;
}

Status Convolution::run(cudnnHandle_t cudnn, Direction direction, int algorithm, bool tf32,
                        const void* first, const void* second, void* out, void* workspace,
                        Bytes bytes) const {
  const auto size = static_cast<std::size_t>(bytes.count);
  switch (direction) {
    case Direction::forward:
      SUPERNEURONS_TRY(cudnnConvolutionForward(
          cudnn, &kOne, x(), first, weight(), second, math(tf32),
          static_cast<cudnnConvolutionFwdAlgo_t>(algorithm), workspace, size, &kZero, y(), out));
      break;
    case Direction::data:
      SUPERNEURONS_TRY(
          cudnnConvolutionBackwardData(cudnn, &kOne, weight(), first, y(), second, math(tf32),
                                       static_cast<cudnnConvolutionBwdDataAlgo_t>(algorithm),
                                       workspace, size, &kZero, x(), out));
      break;
    case Direction::filter:
      SUPERNEURONS_TRY(
          cudnnConvolutionBackwardFilter(cudnn, &kOne, x(), first, y(), second, math(tf32),
                                         static_cast<cudnnConvolutionBwdFilterAlgo_t>(algorithm),
                                         workspace, size, &kZero, weight(), out));
      break;
  }
  return Ok{};
}

Result<std::shared_ptr<Convolution>> Convolutions::get(const ConvolutionShape& shape) {
  std::shared_ptr<Convolution>& slot = made_[shape];
  if (slot == nullptr) {
    auto made = Convolution::make(shape);
    if (!made) return made.error();
    slot = std::make_shared<Convolution>(std::move(*made));
  }
  return slot;
}

}  // namespace superneurons
