// Pooling and local response normalisation on the host.
#include <algorithm>
#include <array>
#include <cmath>

#include "replay/host_native.h"

namespace superneurons {
namespace {

struct Pool {
  std::int64_t n, c, h, w, window, stride, pad, oh, ow;
  std::int64_t planes() const { return n * c; }
};

Pool pool(const HostCall& call) {
  return {call.whole("n"),   call.whole("c"),      call.whole("h"),
          call.whole("w"),   call.whole("window"), call.whole("stride"),
          call.whole("pad"), call.whole("oh"),     call.whole("ow")};
}

struct PoolSizes {
  std::int64_t x, y;
};
PoolSizes pool_sizes(Attributes& a) {
  const Pool p{a.whole("n"),      a.whole("c"),      a.whole("h"),  a.whole("w"), a.whole("window"),
               a.whole("stride"), a.whole("pad", 0), a.whole("oh"), a.whole("ow")};
  a.require(p.pad < p.window, "attribute pad must be smaller than window");
  a.require(p.h + 2 * p.pad >= p.window && (p.h + 2 * p.pad - p.window) / p.stride + 1 == p.oh,
            "attribute oh does not follow from h, window, stride and pad");
  a.require(p.w + 2 * p.pad >= p.window && (p.w + 2 * p.pad - p.window) / p.stride + 1 == p.ow,
            "attribute ow does not follow from w, window, stride and pad");
  return {product({4, p.n, p.c, p.h, p.w}), product({4, p.n, p.c, p.oh, p.ow})};
}

Operands pool_forward_operands(const Op&, Attributes& a) {
  const PoolSizes z = pool_sizes(a);
  return {{z.x}, {z.y}, 0, {}};
}
Operands max_backward_operands(const Op&, Attributes& a) {
  const PoolSizes z = pool_sizes(a);
  return {{z.x, z.y, z.y}, {z.x}, 0, {}};
}
/// The paper's runtime keeps x and y too, unused.
Operands average_backward_operands(const Op& op, Attributes& a) {
  const PoolSizes z = pool_sizes(a);
  if (op.reads.size() == 3) return {{z.y, z.x, z.y}, {z.x}, 0, {}};
  return {{z.y}, {z.x}, 0, {}};
}

/// Calls visit(pixel) for the pixels of the window of output place (oh, ow), row by row.
template <class Visit>
void for_each_pixel(const Pool& p, std::int64_t oh, std::int64_t ow, Visit visit) {
  const std::int64_t top = oh * p.stride - p.pad, left = ow * p.stride - p.pad;
  for (std::int64_t h = std::max<std::int64_t>(top, 0); h < std::min(top + p.window, p.h); ++h)
    for (std::int64_t w = std::max<std::int64_t>(left, 0); w < std::min(left + p.window, p.w); ++w)
      visit(h * p.w + w);
}

/// Calls visit(first pixel of the plane, place in y, oh, ow) for each output place in order.
template <class Visit>
void for_each_place(const Pool& p, Visit visit) {
  for (std::int64_t plane = 0, place = 0; plane < p.planes(); ++plane)
    for (std::int64_t oh = 0; oh < p.oh; ++oh)
      for (std::int64_t ow = 0; ow < p.ow; ++ow, ++place) visit(plane * p.h * p.w, place, oh, ow);
}

/// First largest pixel of a window; its first pixel if none compares (not-a-numbers). A window
/// that rounding and padding left empty has none: -1.
std::int64_t largest(const Pool& p, const float* plane, std::int64_t oh, std::int64_t ow) {
  std::int64_t best = -1;
  for_each_pixel(p, oh, ow, [&](std::int64_t pixel) {
    if (best < 0 || plane[pixel] > plane[best]) best = pixel;
  });
  return best;
}

Status run_max(const HostCall& call) {
  const Pool p = pool(call);
  for_each_place(p, [&](std::int64_t plane, std::int64_t place, std::int64_t oh, std::int64_t ow) {
    const std::int64_t best = largest(p, call.in(0) + plane, oh, ow);
    call.out(0)[place] = best < 0 ? 0.0F : call.in(0)[plane + best];
  });
  return Ok{};
}

Status run_max_backward(const HostCall& call) {
  const Pool p = pool(call);
  std::fill_n(call.out(0), p.planes() * p.h * p.w, 0.0F);
  for_each_place(p, [&](std::int64_t plane, std::int64_t place, std::int64_t oh, std::int64_t ow) {
    const std::int64_t best = largest(p, call.in(0) + plane, oh, ow);
    if (best >= 0) call.out(0)[plane + best] += call.in(2)[place];
  });
  return Ok{};
}

/// What each pixel of a window counts for; padding does not count (cuDNN's mode that excludes it).
float share(const Pool& p, std::int64_t oh, std::int64_t ow) {
  int pixels = 0;
  for_each_pixel(p, oh, ow, [&](std::int64_t) { ++pixels; });
  return 1.0F / static_cast<float>(std::max(pixels, 1));
}

Status run_average(const HostCall& call) {
  const Pool p = pool(call);
  for_each_place(p, [&](std::int64_t plane, std::int64_t place, std::int64_t oh, std::int64_t ow) {
    float sum = 0;
    for_each_pixel(p, oh, ow, [&](std::int64_t pixel) { sum += call.in(0)[plane + pixel]; });
    call.out(0)[place] = sum * share(p, oh, ow);
  });
  return Ok{};
}

Status run_average_backward(const HostCall& call) {
  const Pool p = pool(call);
  std::fill_n(call.out(0), p.planes() * p.h * p.w, 0.0F);
  for_each_place(p, [&](std::int64_t plane, std::int64_t place, std::int64_t oh, std::int64_t ow) {
    const float part = call.in(0)[place] * share(p, oh, ow);
    for_each_pixel(p, oh, ow, [&](std::int64_t pixel) { call.out(0)[plane + pixel] += part; });
  });
  return Ok{};
}

struct Lrn {
  std::int64_t n, c, pixels, size;
  float alpha, beta, k;
  std::int64_t first(std::int64_t channel) const {
    return std::max<std::int64_t>(channel - (size - 1) / 2, 0);
  }
  std::int64_t last(std::int64_t channel) const { return std::min(channel + size / 2, c - 1); }
};

Lrn lrn(const HostCall& call) {
  return {call.whole("n"),    call.whole("c"),    call.whole("h") * call.whole("w"),
          call.whole("size"), call.real("alpha"), call.real("beta"),
          call.real("k")};
}

std::int64_t lrn_bytes(Attributes& a) {
  a.whole("size"), a.real("alpha"), a.real("beta"), a.real("k");
  return product({4, a.whole("n"), a.whole("c"), a.whole("h"), a.whole("w")});
}
Operands lrn_forward_operands(const Op&, Attributes& a) {
  const std::int64_t bytes = lrn_bytes(a);
  return {{bytes}, {bytes}, 0, {}};
}
Operands lrn_backward_operands(const Op&, Attributes& a) {
  const std::int64_t bytes = lrn_bytes(a);
  return {{bytes, bytes, bytes}, {bytes}, 0, {}};
}

/// k + alpha / size * sum of squares over the window of channels, at one pixel (stride: pixels).
float lrn_scale(const Lrn& l, const float* x, std::int64_t channel) {
  float sum = 0;
  for (std::int64_t c = l.first(channel); c <= l.last(channel); ++c)
    sum += x[c * l.pixels] * x[c * l.pixels];
  return l.k + l.alpha / static_cast<float>(l.size) * sum;
}

Status run_lrn(const HostCall& call) {
  const Lrn l = lrn(call);
  for (std::int64_t n = 0; n < l.n; ++n)
    for (std::int64_t pixel = 0; pixel < l.pixels; ++pixel) {
      const std::int64_t at = n * l.c * l.pixels + pixel;
      for (std::int64_t c = 0; c < l.c; ++c)
        call.out(0)[at + c * l.pixels] =
            call.in(0)[at + c * l.pixels] * std::pow(lrn_scale(l, call.in(0) + at, c), -l.beta);
    }
  return Ok{};
}

/// dx_i = dy_i s_i^-beta - 2 alpha beta / size * x_i * sum over j with i in the window of j of
/// dy_j y_j / s_j. May be in place on dy, so a column of dy is kept.
Status run_lrn_backward(const HostCall& call) {
  const Lrn l = lrn(call);
  const float factor = 2.0F * l.alpha * l.beta / static_cast<float>(l.size);
  std::vector<float> direct(static_cast<std::size_t>(l.c)), ratio(direct.size());
  for (std::int64_t n = 0; n < l.n; ++n)
    for (std::int64_t pixel = 0; pixel < l.pixels; ++pixel) {
      const std::int64_t at = n * l.c * l.pixels + pixel;
      for (std::int64_t c = 0; c < l.c; ++c) {
        const std::int64_t i = at + c * l.pixels;
        const float scale = lrn_scale(l, call.in(0) + at, c);
        direct[c] = call.in(2)[i] * std::pow(scale, -l.beta);
        ratio[c] = call.in(2)[i] * call.in(1)[i] / scale;
      }
      for (std::int64_t c = 0; c < l.c; ++c) {
        float sum = 0;  // over the channels whose windows hold c: the window mirrored
        for (std::int64_t j = std::max<std::int64_t>(c - l.size / 2, 0);
             j <= std::min(c + (l.size - 1) / 2, l.c - 1); ++j)
          sum += ratio[j];
        call.out(0)[at + c * l.pixels] = direct[c] - factor * call.in(0)[at + c * l.pixels] * sum;
      }
    }
  return Ok{};
}

constexpr std::array<HostKind, 6> kKinds{{
    {"MaxPoolForward", pool_forward_operands, run_max},
    {"MaxPoolBackward", max_backward_operands, run_max_backward},
    {"AvgPoolForward", pool_forward_operands, run_average},
    {"AvgPoolBackward", average_backward_operands, run_average_backward},
    {"LrnForward", lrn_forward_operands, run_lrn},
    {"LrnBackward", lrn_backward_operands, run_lrn_backward},
}};

}  // namespace

std::span<const HostKind> host_window_kinds() { return kKinds; }

}  // namespace superneurons
