#include "replay/cuda/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ir/files.h"
#include "replay/cuda/convolution.h"
#include "replay/cuda/engine.h"
#include "replay/cuda/pointwise.h"

namespace superneurons {
namespace {

/// cuBLAS is at full speed on Hopper with 32 MiB (cuBLAS manual, cublasSetWorkspace), and takes
/// other kernels without.
constexpr Bytes kCublasWorkspace = 32_MiB;

constexpr int kMostResults = 32;

/// As many as PyTorch tries (torch.backends.cudnn.benchmark_limit). Each costs a round of training
/// steps when choices are measured.
constexpr std::size_t kMostEngines = 10;
/// The plan of each is built to learn its workspace, which may take tens of milliseconds: networks
/// of many shapes try fewer for each.
constexpr std::size_t kMostPlans = 1500, kFewestEngines = 4;

/// What the heuristics of one direction return, best first.
template <class Perf, class Query>
Result<std::vector<int>> ranked(const Query& query) {
  std::vector<Perf> results(kMostResults);
  int returned = 0;
  SUPERNEURONS_TRY(query(kMostResults, &returned, results.data()));
  std::vector<int> algorithms;
  for (int i = 0; i < returned; ++i) {
    const int number = static_cast<int>(results[static_cast<std::size_t>(i)].algo);
    if (results[static_cast<std::size_t>(i)].status != CUDNN_STATUS_SUCCESS) continue;
    if (std::find(algorithms.begin(), algorithms.end(), number) == algorithms.end())
      algorithms.push_back(number);
  }
  return algorithms;
}

Result<std::vector<int>> rank(cudnnHandle_t cudnn, const Convolution& c, Direction direction,
                              bool tf32) {
  switch (direction) {
    case Direction::forward:
      return ranked<cudnnConvolutionFwdAlgoPerf_t>([&](int count, int* returned, auto* results) {
        return cudnnGetConvolutionForwardAlgorithm_v7(cudnn, c.x(), c.weight(), c.math(tf32), c.y(),
                                                      count, returned, results);
      });
    case Direction::data:
      return ranked<cudnnConvolutionBwdDataAlgoPerf_t>(
          [&](int count, int* returned, auto* results) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(
                cudnn, c.weight(), c.y(), c.math(tf32), c.x(), count, returned, results);
          });
    case Direction::filter:
      break;
  }
  return ranked<cudnnConvolutionBwdFilterAlgoPerf_t>([&](int count, int* returned, auto* results) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnn, c.x(), c.y(), c.math(tf32),
                                                         c.weight(), count, returned, results);
  });
}

/// Choices of one direction and math mode: the heuristics' order first, then what they left out.
Result<std::vector<Choice>> choices_of(cudnnHandle_t cudnn, Convolution& convolution,
                                       Direction direction, bool tf32, Bytes limit) {
  auto order = rank(cudnn, convolution, direction, tf32);
  if (!order) return order.error();
  for (const ConvolutionAlgorithm& each : convolution_algorithms(direction))
    if (std::find(order->begin(), order->end(), each.number) == order->end())
      order->push_back(each.number);
  std::vector<Choice> choices;
  for (int number : *order) {
    const ConvolutionAlgorithm* algorithm = find_algorithm(direction, number);
    if (algorithm == nullptr) continue;
    const auto need = convolution.need(cudnn, direction, number, tf32);
    if (!need || *need > limit) continue;
    Choice choice;
    choice.algorithm = std::string(algorithm->name);
    choice.math = tf32 ? "tf32" : "fp32";
    choice.workspace = *need;
    choice.deterministic = algorithm->deterministic;
    choices.push_back(std::move(choice));
  }
  return choices;
}

/// What is not among cuDNN's named algorithms: products of matrices by cuBLAS, without and with
/// workspace for it, and engines.
std::vector<Choice> other_choices(cudnnHandle_t cudnn, const ConvolutionShape& shape,
                                  Direction direction, bool tf32, Bytes limit,
                                  std::size_t engines) {
  std::vector<Choice> choices;
  const auto add = [&](std::string algorithm, Bytes workspace) {
    if (workspace > limit) return;
    Choice& choice = choices.emplace_back();
    choice.algorithm = std::move(algorithm);
    choice.math = tf32 ? "tf32" : "fp32";
    choice.workspace = workspace;
  };
  for (PixelOrder order : {PixelOrder::images, PixelOrder::packed}) {
    const auto need = pointwise_need(shape, direction, order);
    if (!need) continue;
    add(std::string(pointwise_name(order)), *need);
    if (order == PixelOrder::packed)
      add(std::string(pointwise_name(order)), *need + kCublasWorkspace);
  }
  for (const EngineOffer& offer : engine_offers(cudnn, shape, direction, tf32, limit, engines))
    add(engine_name(offer.config), offer.workspace);
  return choices;
}

/// The paper's fused backward op: every deterministic pair, data first, in the order of their
/// ranks.
std::vector<Choice> pairs_of(const std::vector<Choice>& data, const std::vector<Choice>& filter) {
  std::vector<Choice> pairs;
  for (std::size_t sum = 0; sum + 1 < data.size() + filter.size(); ++sum) {
    for (std::size_t i = 0; i <= sum; ++i) {
      if (i >= data.size() || sum - i >= filter.size()) continue;
      const Choice& first = data[i];
      const Choice& second = filter[sum - i];
      if (!first.deterministic || !second.deterministic || first.math != second.math) continue;
      Choice pair = first;
      pair.algorithm += "+" + second.algorithm;
      pair.workspace = std::max(first.workspace, second.workspace);
      pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

class Enumerator {
 public:
  Enumerator(cudnnHandle_t cudnn, Bytes limit, bool tf32, bool others, std::size_t engines)
      : cudnn_(cudnn), limit_(limit), tf32_(tf32), others_(others), engines_(engines) {}

  Result<std::vector<Choice>> enumerate(const Op& op) {
    if (op.kind.starts_with("Linear")) return gemm();
    const auto shape = convolution_shape(op);
    if (!shape) return shape.error();
    auto& known = known_[op.kind][*shape];
    if (!known.empty()) return known;
    auto convolution = convolutions_.get(*shape);
    if (!convolution) return convolution.error();
    auto made = convolution_choices(op.kind, **convolution);
    if (made) known = *made;
    return made;
  }

 private:
  Result<std::vector<Choice>> both(Convolution& convolution, Direction direction) {
    std::vector<Choice> result;
    for (bool tf32 : tf32_ ? std::vector<bool>{true, false} : std::vector<bool>{false}) {
      auto some = choices_of(cudnn_, convolution, direction, tf32, limit_);
      if (!some) return some.error();
      result.insert(result.end(), some->begin(), some->end());
    }
    return result;
  }

  Result<std::vector<Choice>> convolution_choices(const std::string& kind,
                                                  Convolution& convolution) {
    if (kind == "Conv2dForward") return all_of(convolution, Direction::forward);
    if (kind == "Conv2dBackwardData") return all_of(convolution, Direction::data);
    if (kind == "Conv2dBackwardFilter") return all_of(convolution, Direction::filter);
    auto data = both(convolution, Direction::data);
    if (!data) return data;
    auto filter = both(convolution, Direction::filter);
    if (!filter) return filter;
    return pairs_of(*data, *filter);  // of named algorithms only: they are many as it is
  }

  Result<std::vector<Choice>> all_of(Convolution& convolution, Direction direction) {
    auto result = both(convolution, direction);
    if (!result || !others_) return result;
    for (bool tf32 : tf32_ ? std::vector<bool>{true, false} : std::vector<bool>{false}) {
      auto some = other_choices(cudnn_, convolution.shape(), direction, tf32, limit_, engines_);
      result->insert(result->end(), some.begin(), some.end());
    }
    return result;
  }

  Result<std::vector<Choice>> gemm() const {
    std::vector<Choice> choices;
    for (bool tf32 : tf32_ ? std::vector<bool>{true, false} : std::vector<bool>{false}) {
      for (Bytes workspace : {kCublasWorkspace, Bytes{0}}) {
        if (workspace > limit_) continue;
        Choice choice;
        choice.algorithm = "CUBLAS";
        choice.math = tf32 ? "tf32" : "fp32";
        choice.workspace = workspace;
        choices.push_back(std::move(choice));
      }
    }
    return choices;
  }

  cudnnHandle_t cudnn_;
  Bytes limit_;
  bool tf32_;
  bool others_;          // beyond cuDNN's named algorithms
  std::size_t engines_;  // at most, per shape and direction
  Convolutions convolutions_;
  std::map<std::string, std::map<ConvolutionShape, std::vector<Choice>>> known_;
};

bool has_choices(const Op& op) {
  return (op.kind.starts_with("Conv2d") || op.kind.starts_with("Linear")) &&
         !op.kind.ends_with("BackwardBias");
}

/// Engines to try for each shape and direction.
std::size_t engines_for(const Trace& trace) {
  std::set<std::pair<std::string, ConvolutionShape>> distinct;
  for (const Op& op : trace.ops) {
    if (!has_choices(op) || op.kind.starts_with("Linear")) continue;
    if (const auto shape = convolution_shape(op)) distinct.emplace(op.kind, *shape);
  }
  return std::clamp(kMostPlans / std::max<std::size_t>(distinct.size(), 1), kFewestEngines,
                    kMostEngines);
}

}  // namespace

Status enumerate_choices(Trace& trace, Bytes workspace_limit, bool all) {
  cudnnHandle_t handle = nullptr;
  SUPERNEURONS_TRY(cudnnCreate(&handle));
  const CudnnOwner cudnn(handle);
  Enumerator enumerator(handle, workspace_limit, trace.math == "tf32", all,
                        all ? engines_for(trace) : 0);
  for (Op& op : trace.ops) {
    if (!has_choices(op)) continue;
    auto choices = enumerator.enumerate(op);
    if (!choices) {
      Error error = choices.error();
      error.message = fmt::format("{} ({}): {}", op.name, op.kind, error.message);
      return error;
    }
    const auto first = std::find_if(choices->begin(), choices->end(),
                                    [](const Choice& choice) { return choice.deterministic; });
    if (first == choices->end()) {
      return Error{.code = ErrorCode::bad_input,
                   .message = fmt::format("{} ({}): no deterministic algorithm within {} of "
                                          "workspace",
                                          op.name, op.kind, format_bytes(workspace_limit))};
    }
    op.recorded = all ? static_cast<std::uint32_t>(first - choices->begin()) : 0;
    op.choices = all ? std::move(*choices) : std::vector<Choice>{*first};
  }
  return Ok{};
}

}  // namespace superneurons
