#include "replay/cuda/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>

namespace superneurons {
namespace {

constexpr std::string_view kPrefix = "engine:";

Result<BackendOwner> make_descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  SUPERNEURONS_TRY(cudnnBackendCreateDescriptor(type, &made));
  return BackendOwner(made);
}

/// A descriptor whose attributes are set one after the other; the first failure is kept.
class Builder {
 public:
  explicit Builder(cudnnBackendDescriptorType_t type) {
    auto made = make_descriptor(type);
    if (made) owner_ = std::move(*made);
    else fault_ = made.error();
  }
  Builder& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
               std::int64_t count, const void* values) {
    if (!fault_)
      fault_ = failure(cudnnBackendSetAttribute(owner_.get(), name, type, count, values),
                       "cudnnBackendSetAttribute");
    return *this;
  }
  Builder& numbers(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  Builder& part(cudnnBackendAttributeName_t name, const BackendOwner& value) {
    cudnnBackendDescriptor_t raw = value.get();
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
  }
  Result<BackendOwner> finish() {
    if (!fault_) fault_ = failure(cudnnBackendFinalize(owner_.get()), "cudnnBackendFinalize");
    if (fault_) return *fault_;
    return std::move(owner_);
  }

 private:
  BackendOwner owner_;
  std::optional<Error> fault_;
};

// Unique ids of the tensors in a graph and a variant pack.
constexpr std::int64_t kX = 1, kWeight = 2, kY = 3;

Result<BackendOwner> make_tensor(std::int64_t id, std::int64_t n, std::int64_t c, std::int64_t h,
                                 std::int64_t w) {
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  return Builder(CUDNN_BACKEND_TENSOR_DESCRIPTOR)
      .set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type)
      .numbers(CUDNN_ATTR_TENSOR_DIMENSIONS, {n, c, h, w})
      .numbers(CUDNN_ATTR_TENSOR_STRIDES, {c * h * w, h * w, w, 1})
      .numbers(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id})
      .numbers(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {16})
      .finish();
}

Result<BackendOwner> make_convolution(const ConvolutionShape& s) {
  const cudnnDataType_t type = CUDNN_DATA_FLOAT;
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  return Builder(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode)
      .numbers(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {2})
      .numbers(CUDNN_ATTR_CONVOLUTION_DILATIONS, {1, 1})
      .numbers(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {s.stride, s.stride})
      .numbers(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {s.pad_h, s.pad_w})
      .numbers(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {s.pad_h, s.pad_w})
      .finish();
}

/// What the operation of a direction is called.
struct OperationNames {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t alpha, beta, convolution, x, weight, y;
};
OperationNames names_of(Direction direction) {
  switch (direction) {
    case Direction::forward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    case Direction::data:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    case Direction::filter:
      break;
  }
  return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
}

/// Descriptors in the order of making; the last is the graph.
using Parts = std::vector<BackendOwner>;

Result<Parts> make_graph(cudnnHandle_t cudnn, const ConvolutionShape& s, Direction direction) {
  Parts parts;
  std::array<Result<BackendOwner>, 4> operands = {
      make_tensor(kX, s.n, s.c, s.h, s.w), make_tensor(kWeight, s.k, s.c, s.r, s.s),
      make_tensor(kY, s.n, s.k, s.oh, s.ow), make_convolution(s)};
  for (auto& made : operands) {
    if (!made) return made.error();
    parts.push_back(std::move(*made));
  }
  const OperationNames names = names_of(direction);
  const float one = 1, zero = 0;
  auto operation = Builder(names.type)
                       .part(names.convolution, parts[3])
                       .part(names.x, parts[0])
                       .part(names.weight, parts[1])
                       .part(names.y, parts[2])
                       .set(names.alpha, CUDNN_TYPE_FLOAT, 1, &one)
                       .set(names.beta, CUDNN_TYPE_FLOAT, 1, &zero)
                       .finish();
  if (!operation) return operation.error();
  parts.push_back(std::move(*operation));
  auto graph = Builder(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                   .part(CUDNN_ATTR_OPERATIONGRAPH_OPS, parts.back())
                   .set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn)
                   .finish();
  if (!graph) return graph.error();
  parts.push_back(std::move(*graph));
  return parts;
}

/// Up to `count` descriptors of an attribute; cuDNN fills descriptors that the caller made.
std::vector<BackendOwner> read_descriptors(const BackendOwner& from,
                                           cudnnBackendAttributeName_t name,
                                           cudnnBackendDescriptorType_t type, std::int64_t count) {
  std::vector<BackendOwner> owners;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) {
    auto made = make_descriptor(type);
    if (!made) return {};
    raw.push_back(made->get());
    owners.push_back(std::move(*made));
  }
  std::int64_t got = 0;
  if (count == 0 || cudnnBackendGetAttribute(from.get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                                             &got, raw.data()) != CUDNN_STATUS_SUCCESS)
    return {};
  owners.resize(static_cast<std::size_t>(std::min(got, count)));
  return owners;
}

/// Engine configurations that one heuristic recommends.
std::vector<BackendOwner> recommended(const BackendOwner& graph, cudnnBackendHeurMode_t mode) {
  auto heuristic = Builder(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)
                       .part(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
                       .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode)
                       .finish();
  if (!heuristic) return {};
  std::int64_t count = 0;
  if (cudnnBackendGetAttribute(heuristic->get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                               nullptr) != CUDNN_STATUS_SUCCESS)
    return {};
  return read_descriptors(*heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                          CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, count);
}

/// Whether results repeat to the bit and keep the precision that the math mode promises.
bool acceptable(const BackendOwner& engine, bool tf32) {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  std::int64_t count = 0;
  if (cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                               CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                               notes.data()) != CUDNN_STATUS_SUCCESS)
    return false;
  return std::none_of(notes.begin(), notes.begin() + count, [&](cudnnBackendNumericalNote_t note) {
    return note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
           note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
           note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
           (!tf32 && note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  });
}

std::optional<EngineConfig> read_config(const BackendOwner& config, bool tf32) {
  auto engines =
      read_descriptors(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  EngineConfig result;
  std::int64_t count = 0;
  if (engines.empty() || !acceptable(engines[0], tf32) ||
      cudnnBackendGetAttribute(engines[0].get(), CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                               1, &count, &result.engine) != CUDNN_STATUS_SUCCESS)
    return {};
  for (const BackendOwner& knob :
       read_descriptors(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                        CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_KNOB_TYPE_COUNTS)) {
    cudnnBackendKnobType_t type{};
    std::int64_t value = 0;
    if (cudnnBackendGetAttribute(knob.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                                 1, &count, &type) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(knob.get(), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                                 &count, &value) != CUDNN_STATUS_SUCCESS)
      return {};
    result.knobs.emplace_back(static_cast<int>(type), value);
  }
  std::sort(result.knobs.begin(), result.knobs.end());
  return result;
}

Result<BackendOwner> make_config(const EngineConfig& config, Parts& parts) {
  auto engine = Builder(CUDNN_BACKEND_ENGINE_DESCRIPTOR)
                    .part(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, parts.back())
                    .numbers(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, {config.engine})
                    .finish();
  if (!engine) return engine.error();
  std::vector<cudnnBackendDescriptor_t> choices;
  for (const auto& [type, value] : config.knobs) {
    const auto knob_type = static_cast<cudnnBackendKnobType_t>(type);
    auto choice = Builder(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR)
                      .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob_type)
                      .numbers(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, {value})
                      .finish();
    if (!choice) return choice.error();
    choices.push_back(choice->get());
    parts.push_back(std::move(*choice));
  }
  Builder builder(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  builder.part(CUDNN_ATTR_ENGINECFG_ENGINE, *engine);
  if (!choices.empty())
    builder.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                static_cast<std::int64_t>(choices.size()), choices.data());
  parts.push_back(std::move(*engine));
  return builder.finish();
}

/// A whole number at the front of `text`, which is cut off.
template <class T>
bool take_number(std::string_view& text, T& value) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}
bool take(std::string_view& text, char wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string engine_name(const EngineConfig& config) {
  std::string name = fmt::format("{}{}", kPrefix, config.engine);
  char separator = ':';
  for (const auto& [type, value] : config.knobs) {
    name += fmt::format("{}{}={}", separator, type, value);
    separator = ',';
  }
  return name;
}

bool is_engine_name(std::string_view name) { return name.starts_with(kPrefix); }

Result<EngineConfig> parse_engine(std::string_view name) {
  std::string_view rest = name;
  EngineConfig config;
  bool good = is_engine_name(name);
  if (good) rest.remove_prefix(kPrefix.size());
  good = good && take_number(rest, config.engine) && config.engine >= 0;
  for (char separator = ':'; good && !rest.empty(); separator = ',') {
    auto& [type, value] = config.knobs.emplace_back();
    good = take(rest, separator) && take_number(rest, type) && take(rest, '=') &&
           take_number(rest, value) && type >= 0 && type < CUDNN_KNOB_TYPE_COUNTS;
  }
  if (good) return config;
  return Error{.code = ErrorCode::bad_input,
               .message = fmt::format("'{}' names no engine (engine:INDEX:KNOB=VALUE,...)", name)};
}

Result<EnginePlan> EnginePlan::make(cudnnHandle_t cudnn, const ConvolutionShape& shape,
                                    Direction direction, const EngineConfig& config) {
  auto parts = make_graph(cudnn, shape, direction);
  if (!parts) return parts.error();
  auto made = make_config(config, *parts);
  if (!made) return made.error();
  EnginePlan plan;
  plan.parts_ = std::move(*parts);
  auto built = Builder(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
                   .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &cudnn)
                   .part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, *made)
                   .finish();
  if (!built) return built.error();
  plan.parts_.push_back(std::move(*made));
  plan.plan_ = std::move(*built);
  std::int64_t bytes = 0, count = 0;
  SUPERNEURONS_TRY(cudnnBackendGetAttribute(plan.plan_.get(),
                                            CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1, &count, &bytes));
  plan.workspace_ = Bytes{bytes};
  plan.direction_ = direction;
  return plan;
}

Status EnginePlan::run(cudnnHandle_t cudnn, const void* first, const void* second, void* out,
                       void* workspace) const {
  // Tensors in the order of Convolution::run.
  std::array<std::int64_t, 3> ids = {kX, kWeight, kY};
  if (direction_ == Direction::data) ids = {kWeight, kY, kX};
  if (direction_ == Direction::filter) ids = {kX, kY, kWeight};
  const std::array<const void*, 3> addresses = {first, second, out};
  auto pack =
      Builder(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
          .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, addresses.data())
          .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids.data())
          .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
          .finish();
  if (!pack) return pack.error();
  SUPERNEURONS_TRY(cudnnBackendExecute(cudnn, plan_.get(), pack->get()));
  return Ok{};
}

std::vector<EngineOffer> engine_offers(cudnnHandle_t cudnn, const ConvolutionShape& shape,
                                       Direction direction, bool tf32, Bytes limit,
                                       std::size_t most) {
  std::vector<EngineOffer> offers;
  auto graph = make_graph(cudnn, shape, direction);
  if (!graph) return offers;
  std::set<std::string> seen;
  for (cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const BackendOwner& each : recommended(graph->back(), mode)) {
      if (offers.size() == most) return offers;
      const auto config = read_config(each, tf32);
      if (!config || !seen.insert(engine_name(*config)).second) continue;
      const auto plan = EnginePlan::make(cudnn, shape, direction, *config);
      if (plan && plan->workspace() <= limit) offers.push_back({*config, plan->workspace()});
    }
  }
  return offers;
}

}  // namespace superneurons
