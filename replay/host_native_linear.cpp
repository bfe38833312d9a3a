// Linear layers, softmax with cross entropy and SGD on the host.
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "replay/host_native.h"

namespace superneurons {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<Matrix>;
using ConstMap = Eigen::Map<const Matrix>;

struct Linear {
  std::int64_t n, in, out;
};
Linear linear(const HostCall& call) {
  return {call.whole("n"), call.whole("in"), call.whole("out")};
}

struct LinearSizes {
  std::int64_t x, weight, y, bias;
};
LinearSizes linear_sizes(Attributes& a) {
  const std::int64_t n = a.whole("n"), in = a.whole("in"), out = a.whole("out");
  return {product({4, n, in}), product({4, in, out}), product({4, n, out}), product({4, out})};
}

Operands forward_operands(const Op& op, Attributes& a) {
  const LinearSizes z = linear_sizes(a);
  Operands operands{{z.x, z.weight}, {z.y}, 0, {}};
  if (op.reads.size() == 3) operands.reads.push_back(z.bias);
  return operands;
}
Operands data_operands(const Op&, Attributes& a) {
  const LinearSizes z = linear_sizes(a);
  return {{z.weight, z.y}, {z.x}, 0, {}};
}
Operands weight_operands(const Op&, Attributes& a) {
  const LinearSizes z = linear_sizes(a);
  return {{z.x, z.y}, {z.weight}, 0, {}};
}
Operands bias_operands(const Op&, Attributes& a) {
  const LinearSizes z = linear_sizes(a);
  return {{z.y}, {z.bias}, 0, {}};
}
Operands fused_operands(const Op& op, Attributes& a) {
  const LinearSizes z = linear_sizes(a);
  Operands operands{{z.x, z.weight, z.y}, {z.x, z.weight}, 0, {}};
  if (op.writes.size() == 3) operands.writes.push_back(z.bias);
  return operands;
}

void backward_data(const Linear& l, const float* weight, const float* dy, float* dx) {
  Map(dx, l.n, l.in).noalias() = ConstMap(dy, l.n, l.out) * ConstMap(weight, l.out, l.in);
}
void backward_weight(const Linear& l, const float* x, const float* dy, float* dweight) {
  Map(dweight, l.out, l.in).noalias() =
      ConstMap(dy, l.n, l.out).transpose() * ConstMap(x, l.n, l.in);
}
void backward_bias(const Linear& l, const float* dy, float* dbias) {
  std::fill_n(dbias, l.out, 0.0F);
  for (std::int64_t n = 0; n < l.n; ++n)
    for (std::int64_t o = 0; o < l.out; ++o) dbias[o] += *dy++;
}

Status run_forward(const HostCall& call) {
  const Linear l = linear(call);
  Map(call.out(0), l.n, l.out).noalias() =
      ConstMap(call.in(0), l.n, l.in) * ConstMap(call.in(1), l.out, l.in).transpose();
  if (call.op.reads.size() < 3) return Ok{};
  for (std::int64_t i = 0; i < l.n * l.out; ++i) call.out(0)[i] += call.in(2)[i % l.out];
  return Ok{};
}
Status run_data(const HostCall& call) {
  backward_data(linear(call), call.in(0), call.in(1), call.out(0));
  return Ok{};
}
Status run_weight(const HostCall& call) {
  backward_weight(linear(call), call.in(0), call.in(1), call.out(0));
  return Ok{};
}
Status run_bias(const HostCall& call) {
  backward_bias(linear(call), call.in(0), call.out(0));
  return Ok{};
}
Status run_fused(const HostCall& call) {
  const Linear l = linear(call);
  backward_weight(l, call.in(0), call.in(2), call.out(1));
  if (call.op.writes.size() == 3) backward_bias(l, call.in(2), call.out(2));
  backward_data(l, call.in(1), call.in(2), call.out(0));
  return Ok{};
}

Operands softmax_forward_operands(const Op&, Attributes& a) {
  const std::int64_t n = a.whole("n"), classes = a.whole("classes");
  return {{product({4, n, classes}), product({4, n})}, {product({4, n, classes}), 4}, 0, {}};
}
/// The paper's runtime keeps the logits too, unused.
Operands softmax_backward_operands(const Op& op, Attributes& a) {
  const std::int64_t n = a.whole("n"), classes = a.whole("classes");
  const std::int64_t bytes = product({4, n, classes});
  Operands operands{{bytes, product({4, n})}, {bytes}, 0, {}};
  if (op.reads.size() == 3) operands.reads.push_back(bytes);
  return operands;
}

/// Label of image `n`, or an Error if it is no class.
Result<std::int64_t> label_of(const HostCall& call, std::int64_t n, std::int64_t classes) {
  std::int32_t label = 0;
  std::memcpy(&label, call.call.reads[1] + 4 * n, sizeof label);
  if (label < 0 || label >= classes)
    return Error{ErrorCode::bad_input, "op " + call.op.name + ": label " + std::to_string(label) +
                                           " of image " + std::to_string(n) +
                                           " is no class below " + std::to_string(classes)};
  return std::int64_t{label};
}

Status run_softmax(const HostCall& call) {
  const std::int64_t images = call.whole("n"), classes = call.whole("classes");
  const float* logits = call.in(0);
  float* probabilities = call.out(0);
  double loss = 0;
  for (std::int64_t n = 0; n < images; ++n, logits += classes, probabilities += classes) {
    const Result<std::int64_t> label = label_of(call, n, classes);
    if (!label) return label.error();
    const float largest = *std::max_element(logits, logits + classes);
    const double right = static_cast<double>(logits[*label]) - largest;
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      probabilities[c] = std::exp(logits[c] - largest);
      sum += probabilities[c];
    }
    for (std::int64_t c = 0; c < classes; ++c)
      probabilities[c] = static_cast<float>(probabilities[c] / sum);
    loss += std::log(sum) - right;
  }
  *call.out(1) = static_cast<float>(loss / static_cast<double>(images));
  return Ok{};
}

Status run_softmax_backward(const HostCall& call) {
  const std::int64_t images = call.whole("n"), classes = call.whole("classes");
  const float share = 1.0F / static_cast<float>(images);
  for (std::int64_t n = 0; n < images; ++n) {
    const Result<std::int64_t> label = label_of(call, n, classes);
    if (!label) return label.error();
    for (std::int64_t c = 0; c < classes; ++c) {
      const std::int64_t i = n * classes + c;
      call.out(0)[i] = (call.in(0)[i] - (c == *label ? 1.0F : 0.0F)) * share;
    }
  }
  return Ok{};
}

Operands sgd_operands(const Op&, Attributes& a) {
  const std::int64_t bytes = product({4, a.whole("count")});
  a.real("rate"), a.real("momentum"), a.real("weight_decay");
  return {{bytes, bytes, bytes}, {bytes, bytes}, 0, {}};
}

Status run_sgd(const HostCall& call) {
  const float rate = call.real("rate"), momentum = call.real("momentum");
  const float decay = call.real("weight_decay");
  const std::int64_t count = call.whole("count");
  for (std::int64_t i = 0; i < count; ++i) {
    const float weight = call.in(0)[i];
    const float gradient = call.in(1)[i] + decay * weight;
    const float moved = momentum * call.in(2)[i] + gradient;
    call.out(0)[i] = weight - rate * moved;
    call.out(1)[i] = moved;
  }
  return Ok{};
}

constexpr std::array<HostKind, 8> kKinds{{
    {"LinearForward", forward_operands, run_forward},
    {"LinearBackwardData", data_operands, run_data},
    {"LinearBackwardWeight", weight_operands, run_weight},
    {"LinearBackwardBias", bias_operands, run_bias},
    {"LinearBackward", fused_operands, run_fused},
    {"SoftmaxCrossEntropyForward", softmax_forward_operands, run_softmax},
    {"SoftmaxCrossEntropyBackward", softmax_backward_operands, run_softmax_backward},
    {"SgdUpdate", sgd_operands, run_sgd},
}};

}  // namespace

std::span<const HostKind> host_linear_kinds() { return kKinds; }

}  // namespace superneurons
