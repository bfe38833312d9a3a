// Runs lowered traces on one number per tensor, each layer a smooth function of one number, and
// holds the gradient that every parameter is updated with against one computed from the layer graph
// itself. An op that reads a tensor after somebody overwrote it gives another number.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>

#include "networks/network.h"
#include "tests/networks/random_network.h"

namespace superneurons {
namespace {

/// First value of a parameter (or of anything) by its name, between 0.2 and 0.9.
double first_value(const std::string& name) {
  if (name == "labels") return 0.25;
  std::uint64_t hash = 1469598103934665603ULL;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<std::uint64_t>(c)) * 1099511628211ULL;
  return 0.2 + 0.7 * static_cast<double>(hash >> 40) / (1 << 24);
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double branch_factor(std::size_t i) { return 0.3 + 0.1 * static_cast<double>(i); }

/// 0 where `value` is what it should be, something large where it was lost.
double lost(double value, double should_be) { return 1000 * (value - should_be); }

using Gradients = std::map<std::string, double>;  // by parameter

// ---- the layer graph itself

double layer_value(const Layer& layer, const std::vector<double>& x) {
  double sum = 0;
  switch (layer.kind) {
    case LayerKind::convolution:
    case LayerKind::linear:
      return x[0] * first_value(layer.name + ".weight") +
             (layer.bias ? first_value(layer.name + ".bias") : 0);
    case LayerKind::batch_norm:
      return x[0] * first_value(layer.name + ".gamma") + first_value(layer.name + ".beta");
    case LayerKind::relu:
      return logistic(x[0]);
    case LayerKind::max_pool:
      return std::tanh(x[0]);
    case LayerKind::lrn:
      return std::sin(x[0]);
    case LayerKind::average_pool:
      return 0.6 * x[0];
    case LayerKind::dropout:
      return 0.5 * x[0];
    case LayerKind::add:
      for (const double value : x) sum += value;
      return sum;
    case LayerKind::concat:
      for (std::size_t i = 0; i < x.size(); ++i) sum += branch_factor(i) * x[i];
      return sum;
    case LayerKind::softmax_cross_entropy:
      return std::tanh(x[0]);
    case LayerKind::data:
      break;
  }
  return first_value("data");
}

/// d output / d input `i`, except of the loss, whose gradient is probabilities - labels.
double slope(const Layer& layer, double x, double y, std::size_t i) {
  switch (layer.kind) {
    case LayerKind::convolution:
    case LayerKind::linear:
      return first_value(layer.name + ".weight");
    case LayerKind::batch_norm:
      return first_value(layer.name + ".gamma");
    case LayerKind::relu:
      return y * (1 - y);
    case LayerKind::max_pool:
      return 1 - y * y;
    case LayerKind::lrn:
      return std::cos(x);
    case LayerKind::average_pool:
      return 0.6;
    case LayerKind::dropout:
      return 0.5;
    case LayerKind::concat:
      return branch_factor(i);
    default:
      return 1;
  }
}

Gradients gradients_of(const Network& net) {
  std::vector<double> y(net.layers.size());
  for (std::size_t l = 0; l < y.size(); ++l) {
    std::vector<double> x;
    for (const LayerId input : net.layers[l].inputs) x.push_back(y[input.index]);
    y[l] = layer_value(net.layers[l], x);
  }
  Gradients result;
  std::vector<double> dy(y.size(), 0);
  for (std::size_t l = y.size(); l-- > 1;) {
    const Layer& layer = net.layers[l];
    if (layer.kind == LayerKind::softmax_cross_entropy) dy[l] = y[l] - first_value("labels");
    const double x = y[layer.inputs[0].index];
    const bool gemm = layer.kind == LayerKind::convolution || layer.kind == LayerKind::linear;
    if (gemm) result[layer.name + ".weight"] = x * dy[l];
    if (gemm && layer.bias) result[layer.name + ".bias"] = dy[l];
    if (layer.kind == LayerKind::batch_norm) {
      result[layer.name + ".gamma"] = x * dy[l];
      result[layer.name + ".beta"] = dy[l];
    }
    for (std::size_t i = 0; i < layer.inputs.size(); ++i)
      dy[layer.inputs[i].index] += dy[l] * slope(layer, y[layer.inputs[i].index], y[l], i);
  }
  return result;
}

// ---- the trace, op by op: operands as networks/operations.md lists them

using Values = std::vector<double>;

std::optional<Values> run_forward(const std::string& kind, const Values& in) {
  if (kind == "Conv2dForward" || kind == "LinearForward")
    return Values{in[0] * in[1] + (in.size() > 2 ? in[2] : 0)};
  if (kind == "ReluForward") return Values{logistic(in[0])};
  if (kind == "MaxPoolForward") return Values{std::tanh(in[0])};
  if (kind == "LrnForward") return Values{std::sin(in[0])};
  if (kind == "AvgPoolForward") return Values{0.6 * in[0]};
  if (kind == "DropoutForward") return Values{0.5 * in[0], 7};
  if (kind == "BatchNormForward")
    return Values{in[0] * in[1] + in[2], in[0] + 1, in[0] + 2, in[3], in[4]};
  if (kind == "SoftmaxCrossEntropyForward") return Values{std::tanh(in[0]), in[0]};
  double sum = 0;
  if (kind == "AddForward" || kind == "Accumulate")
    for (const double x : in) sum += x;
  else if (kind == "ConcatForward")
    for (std::size_t i = 0; i < in.size(); ++i) sum += branch_factor(i) * in[i];
  else return std::nullopt;
  return Values{sum};
}

std::optional<Values> run_backward(const std::string& kind, const Values& in, std::size_t outputs) {
  if (kind == "Conv2dBackwardData" || kind == "LinearBackwardData" ||
      kind == "Conv2dBackwardFilter" || kind == "LinearBackwardWeight")
    return Values{in[0] * in[1]};
  if (kind == "Conv2dBackwardBias" || kind == "LinearBackwardBias") return Values{in[0]};
  if (kind == "Conv2dBackward" || kind == "LinearBackward") {
    Values out = {in[1] * in[2], in[0] * in[2], in[2]};
    out.resize(outputs);
    return out;
  }
  if (kind == "ReluBackward") return Values{in[1] * in[0] * (1 - in[0])};
  if (kind == "MaxPoolBackward")
    return Values{in[2] * (1 - in[1] * in[1]) + lost(in[1], std::tanh(in[0]))};
  if (kind == "LrnBackward") return Values{in[2] * std::cos(in[0]) + lost(in[1], std::sin(in[0]))};
  if (kind == "AvgPoolBackward") return Values{0.6 * in[0]};
  if (kind == "DropoutBackward") return Values{0.5 * in[0] + lost(in[1], 7)};
  if (kind == "BatchNormBackward")
    return Values{in[1] * in[2] + lost(in[3], in[0] + 1) + lost(in[4], in[0] + 2), in[0] * in[1],
                  in[1]};
  if (kind == "SoftmaxCrossEntropyBackward") return Values{in[0] - in[1]};
  Values out;
  if (kind == "ConcatBackward")
    for (std::size_t i = 0; i < outputs; ++i) out.push_back(in[0] * branch_factor(i));
  else if (kind == "Copy") out.assign(outputs, in[0]);
  else return std::nullopt;
  return out;
}

Gradients gradients_of(const Trace& trace) {
  std::vector<double> memory(trace.tensors.size(), NAN);
  for (const Carry& carry : trace.carry)
    memory[carry.start.index] = first_value(trace[carry.start].name);
  Gradients result;
  for (const Op& op : trace.ops) {
    Values in;
    for (const Access& read : op.reads) in.push_back(memory[read.tensor.index]);
    if (op.kind == "SgdUpdate") {
      EXPECT_TRUE(result.emplace(trace[op.reads[0].tensor].name, in[1]).second) << op.name;
      continue;
    }
    auto out = run_forward(op.kind, in);
    if (!out) out = run_backward(op.kind, in, op.writes.size());
    if (!out || out->size() != op.writes.size()) {
      ADD_FAILURE() << op.name << " of kind " << op.kind << " is not as operations.md says";
      return {};
    }
    for (std::size_t i = 0; i < out->size(); ++i) memory[op.writes[i].tensor.index] = (*out)[i];
  }
  return result;
}

void expect_right_gradients(const Network& net, const std::string& what) {
  const Gradients expected = gradients_of(net);
  for (const Lowering lowering : {Lowering::native, Lowering::paper}) {
    const Result<Trace> trace = lower(net, {.batch = 2, .lowering = lowering});
    ASSERT_TRUE(trace) << what << ": " << trace.error().message;
    const Gradients found = gradients_of(*trace);
    ASSERT_EQ(found.size(), expected.size()) << what << " " << trace->lowering;
    for (const auto& [name, value] : expected) {
      ASSERT_TRUE(found.contains(name)) << what << " " << trace->lowering << " " << name;
      ASSERT_NEAR(found.at(name), value, 1e-9 * (1e-6 + std::abs(value)))
          << what << " " << trace->lowering << " " << name;
    }
  }
}

TEST(Gradients, BuiltInNetworksUpdateWithTheGradientOfTheirGraph) {
  for (const NetworkEntry& entry : networks())
    expect_right_gradients(entry.make(), std::string(entry.name));
}

TEST(Gradients, RandomNetworksUpdateWithTheGradientOfTheirGraph) {
  for (std::uint64_t seed = 0; seed < 1000; ++seed)
    expect_right_gradients(random_network(seed), "seed " + std::to_string(seed));
}

}  // namespace
}  // namespace superneurons
