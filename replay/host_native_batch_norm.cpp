// Batch normalisation on the host (Ioffe and Szegedy, ICML 2015, algorithm 1), per channel over
// images and pixels; sums in double.
#include <array>
#include <cmath>

#include "replay/host_native.h"

namespace superneurons {
namespace {

struct Shape {
  std::int64_t n, c, pixels;
  std::int64_t count() const { return n * pixels; }
};
Shape shape(const HostCall& call) {
  return {call.whole("n"), call.whole("c"), call.whole("h") * call.whole("w")};
}

struct Sizes {
  std::int64_t x, channels;
};
Sizes sizes(Attributes& a) {
  a.require(a.real("epsilon") > 0, "attribute epsilon must be positive");
  a.real("momentum");
  return {product({4, a.whole("n"), a.whole("c"), a.whole("h"), a.whole("w")}),
          product({4, a.whole("c")})};
}

Operands forward_operands(const Op&, Attributes& a) {
  const Sizes z = sizes(a);
  const std::int64_t c = z.channels;
  return {{z.x, c, c, c, c}, {z.x, c, c, c, c}, 0, {1, 2}};
}
Operands backward_operands(const Op&, Attributes& a) {
  const Sizes z = sizes(a);
  const std::int64_t c = z.channels;
  return {{z.x, z.x, c, c, c}, {z.x, c, c}, 0, {}};
}

/// Calls visit(index) for each element of a channel, in order.
template <class Visit>
void for_each(const Shape& s, std::int64_t channel, Visit visit) {
  for (std::int64_t n = 0; n < s.n; ++n)
    for (std::int64_t i = 0; i < s.pixels; ++i) visit((n * s.c + channel) * s.pixels + i);
}

struct Moments {
  double mean, variance;  // biased
};
Moments moments(const Shape& s, std::int64_t channel, const float* x) {
  double sum = 0, squares = 0;
  for_each(s, channel, [&](std::int64_t i) { sum += x[i]; });
  const double mean = sum / static_cast<double>(s.count());
  for_each(s, channel, [&](std::int64_t i) { squares += (x[i] - mean) * (x[i] - mean); });
  return {mean, squares / static_cast<double>(s.count())};
}

/// running = (1 - momentum) running + momentum batch, with the unbiased variance. A rerun gets null
/// pointers and leaves them alone.
void update_running(const HostCall& call, const Shape& s, std::int64_t channel, Moments batch) {
  if (call.out(3) == nullptr || call.out(4) == nullptr) return;
  if (call.in(3) == nullptr || call.in(4) == nullptr) return;
  const double momentum = call.op.attributes.find("momentum")->second;
  const auto count = static_cast<double>(s.count());
  const double unbiased = s.count() > 1 ? batch.variance * count / (count - 1) : batch.variance;
  call.out(3)[channel] =
      static_cast<float>((1 - momentum) * call.in(3)[channel] + momentum * batch.mean);
  call.out(4)[channel] =
      static_cast<float>((1 - momentum) * call.in(4)[channel] + momentum * unbiased);
}

Status run_forward(const HostCall& call) {
  const Shape s = shape(call);
  const double epsilon = call.op.attributes.find("epsilon")->second;
  for (std::int64_t c = 0; c < s.c; ++c) {
    const Moments batch = moments(s, c, call.in(0));
    const double invstd = 1 / std::sqrt(batch.variance + epsilon);
    for_each(s, c, [&](std::int64_t i) {
      call.out(0)[i] =
          static_cast<float>((call.in(0)[i] - batch.mean) * invstd * call.in(1)[c] + call.in(2)[c]);
    });
    if (call.out(1) != nullptr) call.out(1)[c] = static_cast<float>(batch.mean);
    if (call.out(2) != nullptr) call.out(2)[c] = static_cast<float>(invstd);
    update_running(call, s, c, batch);
  }
  return Ok{};
}

/// With x^ = (x - mean) invstd: dbeta = sum dy, dgamma = sum dy x^,
/// dx = gamma invstd (dy - dbeta / m - x^ dgamma / m).
Status run_backward(const HostCall& call) {
  const Shape s = shape(call);
  const float* x = call.in(0);
  const float* dy = call.in(1);
  const auto count = static_cast<double>(s.count());
  for (std::int64_t c = 0; c < s.c; ++c) {
    const double gamma = call.in(2)[c], mean = call.in(3)[c], invstd = call.in(4)[c];
    double sum = 0, product = 0;
    for_each(s, c, [&](std::int64_t i) {
      sum += dy[i];
      product += dy[i] * (x[i] - mean) * invstd;
    });
    for_each(s, c, [&](std::int64_t i) {
      const double normal = (x[i] - mean) * invstd;
      call.out(0)[i] =
          static_cast<float>(gamma * invstd * (dy[i] - sum / count - normal * product / count));
    });
    call.out(1)[c] = static_cast<float>(product);
    call.out(2)[c] = static_cast<float>(sum);
  }
  return Ok{};
}

constexpr std::array<HostKind, 2> kKinds{{
    {"BatchNormForward", forward_operands, run_forward},
    {"BatchNormBackward", backward_operands, run_backward},
}};

}  // namespace

std::span<const HostKind> host_batch_norm_kinds() { return kKinds; }

}  // namespace superneurons
