// Convolution ops: algorithms by the name in the choice, from cuDNN, its engines or cuBLAS.
#include <fmt/format.h>

#include "ir/files.h"
#include "replay/cuda/channels.h"
#include "replay/cuda/elementwise.h"
#include "replay/cuda/native.h"
#include "replay/cuda/pointwise.h"

namespace superneurons {
namespace {

/// A choice of one direction: one of these, or none where the trace names none.
struct Selection {
  const ConvolutionAlgorithm* algorithm = nullptr;
  std::optional<PixelOrder> pointwise;
  std::optional<EngineConfig> engine;
  bool tf32 = false;
};

Result<Selection> select(Direction direction, const ConvolutionShape& shape, std::string_view name,
                         const Choice& choice) {
  Selection selection;
  selection.tf32 = choice.math == "tf32";
  if (name.empty()) return selection;
  if (is_engine_name(name)) {
    auto config = parse_engine(name);
    if (!config) return config.error();
    selection.engine = *config;
    return selection;
  }
  selection.pointwise = find_pointwise(name);
  if (selection.pointwise) {
    const auto need = pointwise_need(shape, direction, *selection.pointwise);
    if (need && *need <= choice.workspace) return selection;
    return Error{.code = ErrorCode::bad_input,
                 .message = fmt::format("algorithm {} {}", name,
                                        need ? "wants " + format_bytes(*need) + " of workspace"
                                             : "does 1x1 convolutions without padding only")};
  }
  selection.algorithm = find_algorithm(direction, name);
  if (selection.algorithm != nullptr) return selection;
  return Error{.code = ErrorCode::bad_input,
               .message = fmt::format("there is no algorithm '{}' for it", name)};
}

Result<std::vector<Selection>> select_all(Direction direction, const ConvolutionShape& shape,
                                          const Op& op) {
  std::vector<Selection> result;
  for (const Choice& choice : op.choices) {
    auto selection = select(direction, shape, choice.algorithm, choice);
    if (!selection) return selection.error();
    result.push_back(*selection);
  }
  return result;
}

/// The named algorithm if its workspace suffices; for no name, the first deterministic one that
/// makes do with the workspace granted.
Result<int> settle(cudnnHandle_t cudnn, Convolution& convolution, Direction direction,
                   const Selection& selection, Bytes granted) {
  if (selection.algorithm != nullptr) {
    const auto need =
        convolution.need(cudnn, direction, selection.algorithm->number, selection.tf32);
    if (need && *need <= granted) return selection.algorithm->number;
    return Error{
        .code = ErrorCode::bad_input,
        .message = fmt::format("algorithm {} {}", selection.algorithm->name,
                               need ? fmt::format("wants {} of workspace, not {}",
                                                  format_bytes(*need), format_bytes(granted))
                                    : "is not supported here")};
  }
  for (const ConvolutionAlgorithm& each : convolution_algorithms(direction)) {
    if (!each.deterministic) continue;
    const auto need = convolution.need(cudnn, direction, each.number, selection.tf32);
    if (need && *need <= granted) return each.number;
  }
  return Error{.code = ErrorCode::bad_input,
               .message = fmt::format("cuDNN has no deterministic algorithm for it in {} of "
                                      "workspace",
                                      format_bytes(granted))};
}

Status run_direction(Libraries& libraries, Convolution& convolution, Direction direction,
                     const Selection& selection, const KernelCall& call, const float* first,
                     const float* second, float* out) {
  cudnnHandle_t cudnn = libraries.cudnn.get();
  if (selection.pointwise) {
    return run_pointwise(libraries, convolution.shape(), direction, *selection.pointwise,
                         selection.tf32, call, first, second, out);
  }
  if (selection.engine) {
    const auto plan = convolution.engine(cudnn, direction, *selection.engine);
    if (!plan) return plan.error();
    if ((*plan)->workspace() <= call.workspace_bytes)
      return (*plan)->run(cudnn, first, second, out, call.workspace);
    return Error{.code = ErrorCode::bad_input,
                 .message = fmt::format(
                     "{} wants {} of workspace, not {}", engine_name(*selection.engine),
                     format_bytes((*plan)->workspace()), format_bytes(call.workspace_bytes))};
  }
  const auto algorithm = settle(cudnn, convolution, direction, selection, call.workspace_bytes);
  if (!algorithm) return algorithm.error();
  return convolution.run(cudnn, direction, *algorithm, selection.tf32, first, second, out,
                         call.workspace, call.workspace_bytes);
}

Status bias_gradient(Libraries& libraries, const ConvolutionShape& shape, const float* dy,
                     float* dbias) {
  SUPERNEURONS_TRY(launch_channel_sums(dy, dbias, shape.n, shape.k,
                                       std::int64_t{shape.oh} * shape.ow, libraries.stream));
  return Ok{};
}

Result<std::shared_ptr<Convolution>> shared_convolution(const Making& making) {
  const auto shape = convolution_shape(making.op());
  if (!shape) return shape.error();
  return making.libraries.convolutions.get(*shape);
}

Result<Runner> make_forward(const Making& making) {
  auto convolution = shared_convolution(making);
  if (!convolution) return convolution.error();
  const ConvolutionShape shape = (*convolution)->shape();
  const bool bias = making.op().reads.size() == 3;
  std::vector<Expected> reads = {{shape.x()}, {shape.weight()}};
  if (bias) reads.push_back({shape.k});
  if (Status good = expect(making, reads, {{shape.y()}}); !good) return good.error();
  auto selections = select_all(Direction::forward, shape, making.op());
  if (!selections) return selections.error();
  return Runner([&libraries = making.libraries, convolution = *convolution, shape, bias,
                 selections = *selections](const KernelCall& call) -> Status {
    Status ran = run_direction(libraries, *convolution, Direction::forward, selections[call.choice],
                               call, input(call, 0), input(call, 1), output(call, 0));
    if (!ran || !bias) return ran;
    SUPERNEURONS_TRY(launch_add_bias(output(call, 0), input(call, 2), std::int64_t{shape.n},
                                     shape.k, std::int64_t{shape.oh} * shape.ow, libraries.stream));
    return Ok{};
  });
}

template <Direction direction>
Result<Runner> make_backward(const Making& making) {
  auto convolution = shared_convolution(making);
  if (!convolution) return convolution.error();
  const ConvolutionShape shape = (*convolution)->shape();
  constexpr bool data = direction == Direction::data;
  if (Status good = expect(making, {{data ? shape.weight() : shape.x()}, {shape.y()}},
                           {{data ? shape.x() : shape.weight()}});
      !good)
    return good.error();
  auto selections = select_all(direction, shape, making.op());
  if (!selections) return selections.error();
  return Runner([&libraries = making.libraries, convolution = *convolution,
                 selections = *selections](const KernelCall& call) {
    return run_direction(libraries, *convolution, direction, selections[call.choice], call,
                         input(call, 0), input(call, 1), output(call, 0));
  });
}

Result<Runner> make_bias(const Making& making) {
  auto convolution = shared_convolution(making);
  if (!convolution) return convolution.error();
  const ConvolutionShape shape = (*convolution)->shape();
  if (Status good = expect(making, {{shape.y()}}, {{shape.k}}); !good) return good.error();
  return Runner([&libraries = making.libraries, shape](const KernelCall& call) {
    return bias_gradient(libraries, shape, input(call, 0), output(call, 0));
  });
}

/// The fused backward op of the paper's lowering names both algorithms: "ALGO_1+FFT_TILING".
struct FusedSelection {
  Selection data, filter;
};
Result<std::vector<FusedSelection>> select_fused(const ConvolutionShape& shape, const Op& op) {
  std::vector<FusedSelection> result;
  for (const Choice& choice : op.choices) {
    const std::string_view name = choice.algorithm;
    const std::size_t plus = name.find('+');
    const auto second = plus == std::string_view::npos ? name : name.substr(plus + 1);
    auto data = select(Direction::data, shape, name.substr(0, plus), choice);
    auto filter = select(Direction::filter, shape, second, choice);
    if (!data) return data.error();
    if (!filter) return filter.error();
    result.push_back({*data, *filter});
  }
  return result;
}

Result<Runner> make_fused(const Making& making) {
  auto convolution = shared_convolution(making);
  if (!convolution) return convolution.error();
  const ConvolutionShape shape = (*convolution)->shape();
  const bool bias = making.op().writes.size() == 3;
  std::vector<Expected> writes = {{shape.x()}, {shape.weight()}};
  if (bias) writes.push_back({shape.k});
  if (Status good = expect(making, {{shape.x()}, {shape.weight()}, {shape.y()}}, writes); !good)
    return good.error();
  auto selections = select_fused(shape, making.op());
  if (!selections) return selections.error();
  return Runner([&libraries = making.libraries, convolution = *convolution, bias,
                 selections = *selections](const KernelCall& call) -> Status {
    const FusedSelection& selection = selections[call.choice];
    const float* x = input(call, 0);
    const float* weight = input(call, 1);
    const float* dy = input(call, 2);
    // The filter first: dx may lie where x was only if nothing reads x afterwards.
    Status ran = run_direction(libraries, *convolution, Direction::filter, selection.filter, call,
                               x, dy, output(call, 1));
    if (ran && bias) ran = bias_gradient(libraries, convolution->shape(), dy, output(call, 2));
    if (!ran) return ran;
    return run_direction(libraries, *convolution, Direction::data, selection.data, call, weight, dy,
                         output(call, 0));
  });
}

constexpr NativeKernel kKernels[] = {
    {"Conv2dForward", make_forward},
    {"Conv2dBackwardData", make_backward<Direction::data>},
    {"Conv2dBackwardFilter", make_backward<Direction::filter>},
    {"Conv2dBackwardBias", make_bias},
    {"Conv2dBackward", make_fused},
};

}  // namespace

std::span<const NativeKernel> convolution_kernels() { return kKernels; }

}  // namespace superneurons
