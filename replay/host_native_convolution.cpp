// Convolutions on the host. IM2COL: one matrix product per image over unrolled patches in the
// workspace; DIRECT (or no algorithm): plain loops without workspace.
#include <Eigen/Core>
#include <algorithm>
#include <array>

#include "replay/host_native.h"

namespace superneurons {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Map = Eigen::Map<Matrix>;
using ConstMap = Eigen::Map<const Matrix>;

struct Geometry {
  std::int64_t n, c, h, w, k, r, s, stride, pad_h, pad_w, oh, ow;
  const KernelCall* call = nullptr;  // looked at between images: a layer may take seconds

  std::int64_t image() const { return c * h * w; }
  std::int64_t output() const { return k * oh * ow; }
  std::int64_t patch() const { return c * r * s; }
  std::int64_t places() const { return oh * ow; }
  std::int64_t weights() const { return k * patch(); }
};

Geometry geometry(const HostCall& call) {
  return {call.whole("n"),
          call.whole("c"),
          call.whole("h"),
          call.whole("w"),
          call.whole("k"),
          call.whole("r"),
          call.whole("s"),
          call.whole("stride"),
          call.padding("pad_h"),
          call.padding("pad_w"),
          call.whole("oh"),
          call.whole("ow"),
          &call.call};
}

struct Sizes {
  std::int64_t x, weight, y, bias, workspace;
};

Sizes sizes(Attributes& a) {
  const Geometry g{a.whole("n"),       a.whole("c"),       a.whole("h"),  a.whole("w"),
                   a.whole("k"),       a.whole("r"),       a.whole("s"),  a.whole("stride"),
                   a.padding("pad_h"), a.padding("pad_w"), a.whole("oh"), a.whole("ow")};
  a.require(g.h + 2 * g.pad_h >= g.r && (g.h + 2 * g.pad_h - g.r) / g.stride + 1 == g.oh,
            "attribute oh does not follow from h, r, stride and pad");
  a.require(g.w + 2 * g.pad_w >= g.s && (g.w + 2 * g.pad_w - g.s) / g.stride + 1 == g.ow,
            "attribute ow does not follow from w, s, stride and pad");
  return {product({4, g.n, g.c, g.h, g.w}), product({4, g.k, g.c, g.r, g.s}),
          product({4, g.n, g.k, g.oh, g.ow}), product({4, g.k}),
          product({4, g.c, g.r, g.s, g.oh, g.ow})};
}

Operands forward_operands(const Op& op, Attributes& a) {
  const Sizes z = sizes(a);
  Operands operands{{z.x, z.weight}, {z.y}, z.workspace, {}};
  if (op.reads.size() == 3) operands.reads.push_back(z.bias);
  return operands;
}
Operands data_operands(const Op&, Attributes& a) {
  const Sizes z = sizes(a);
  return {{z.weight, z.y}, {z.x}, z.workspace, {}};
}
Operands filter_operands(const Op&, Attributes& a) {
  const Sizes z = sizes(a);
  return {{z.x, z.y}, {z.weight}, z.workspace, {}};
}
Operands bias_operands(const Op&, Attributes& a) {
  const Sizes z = sizes(a);
  return {{z.y}, {z.bias}, 0, {}};
}
Operands fused_operands(const Op& op, Attributes& a) {
  const Sizes z = sizes(a);
  Operands operands{{z.x, z.weight, z.y}, {z.x, z.weight}, z.workspace, {}};
  if (op.writes.size() == 3) operands.writes.push_back(z.bias);
  return operands;
}

/// Calls visit(patch row, place, pixel) for each pair of a weight position and an output place of
/// one image, pixel < 0 where it lies in the padding. Order: as rows of the patch matrix.
template <class Visit>
void for_each_patch(const Geometry& g, Visit visit) {
  for (std::int64_t c = 0, row = 0; c < g.c; ++c)
    for (std::int64_t r = 0; r < g.r; ++r)
      for (std::int64_t s = 0; s < g.s; ++s, ++row)
        for (std::int64_t oh = 0, place = 0; oh < g.oh; ++oh) {
          const std::int64_t h = oh * g.stride + r - g.pad_h;
          for (std::int64_t ow = 0; ow < g.ow; ++ow, ++place) {
            const std::int64_t w = ow * g.stride + s - g.pad_w;
            const bool inside = h >= 0 && h < g.h && w >= 0 && w < g.w;
            visit(row, place, inside ? (c * g.h + h) * g.w + w : -1);
          }
        }
}

void unroll(const Geometry& g, const float* image, float* patches) {
  for_each_patch(g, [&](std::int64_t row, std::int64_t place, std::int64_t pixel) {
    patches[row * g.places() + place] = pixel < 0 ? 0.0F : image[pixel];
  });
}

/// The patch matrix in the workspace if this call has one to use, else null: direct loops.
float* patches_of(const HostCall& call) {
  return call.choice().algorithm == "IM2COL" ? reinterpret_cast<float*>(call.call.workspace)
                                             : nullptr;
}

void add_bias(const Geometry& g, const float* bias, float* y) {
  for (std::int64_t n = 0; n < g.n; ++n)
    for (std::int64_t k = 0; k < g.k; ++k, y += g.places())
      for (std::int64_t i = 0; i < g.places(); ++i) y[i] += bias[k];
}

void forward(const Geometry& g, const float* x, const float* weight, float* y, float* patches) {
  for (std::int64_t n = 0; n < g.n && !g.call->stopped(); ++n, x += g.image(), y += g.output()) {
    if (patches != nullptr) {
      unroll(g, x, patches);
      Map(y, g.k, g.places()).noalias() =
          ConstMap(weight, g.k, g.patch()) * ConstMap(patches, g.patch(), g.places());
      continue;
    }
    std::fill_n(y, g.output(), 0.0F);
    for (std::int64_t k = 0; k < g.k; ++k)
      for_each_patch(g, [&](std::int64_t row, std::int64_t place, std::int64_t pixel) {
        if (pixel >= 0) y[k * g.places() + place] += weight[k * g.patch() + row] * x[pixel];
      });
  }
}

void backward_data(const Geometry& g, const float* weight, const float* dy, float* dx,
                   float* patches) {
  std::fill_n(dx, g.n * g.image(), 0.0F);
  for (std::int64_t n = 0; n < g.n && !g.call->stopped(); ++n, dx += g.image(), dy += g.output()) {
    if (patches != nullptr) {
      Map(patches, g.patch(), g.places()).noalias() =
          ConstMap(weight, g.k, g.patch()).transpose() * ConstMap(dy, g.k, g.places());
      for_each_patch(g, [&](std::int64_t row, std::int64_t place, std::int64_t pixel) {
        if (pixel >= 0) dx[pixel] += patches[row * g.places() + place];
      });
      continue;
    }
    for (std::int64_t k = 0; k < g.k; ++k)
      for_each_patch(g, [&](std::int64_t row, std::int64_t place, std::int64_t pixel) {
        if (pixel >= 0) dx[pixel] += weight[k * g.patch() + row] * dy[k * g.places() + place];
      });
  }
}

void backward_filter(const Geometry& g, const float* x, const float* dy, float* dweight,
                     float* patches) {
  std::fill_n(dweight, g.weights(), 0.0F);
  for (std::int64_t n = 0; n < g.n && !g.call->stopped(); ++n, x += g.image(), dy += g.output()) {
    if (patches != nullptr) {
      unroll(g, x, patches);
      Map(dweight, g.k, g.patch()).noalias() +=
          ConstMap(dy, g.k, g.places()) * ConstMap(patches, g.patch(), g.places()).transpose();
      continue;
    }
    for (std::int64_t k = 0; k < g.k; ++k)
      for_each_patch(g, [&](std::int64_t row, std::int64_t place, std::int64_t pixel) {
        if (pixel >= 0) dweight[k * g.patch() + row] += x[pixel] * dy[k * g.places() + place];
      });
  }
}

void backward_bias(const Geometry& g, const float* dy, float* dbias) {
  std::fill_n(dbias, g.k, 0.0F);
  for (std::int64_t n = 0; n < g.n; ++n)
    for (std::int64_t k = 0; k < g.k; ++k)
      for (std::int64_t i = 0; i < g.places(); ++i) dbias[k] += *dy++;
}

Status run_forward(const HostCall& call) {
  const Geometry g = geometry(call);
  forward(g, call.in(0), call.in(1), call.out(0), patches_of(call));
  if (call.op.reads.size() == 3) add_bias(g, call.in(2), call.out(0));
  return Ok{};
}
Status run_data(const HostCall& call) {
  backward_data(geometry(call), call.in(0), call.in(1), call.out(0), patches_of(call));
  return Ok{};
}
Status run_filter(const HostCall& call) {
  backward_filter(geometry(call), call.in(0), call.in(1), call.out(0), patches_of(call));
  return Ok{};
}
Status run_bias(const HostCall& call) {
  backward_bias(geometry(call), call.in(0), call.out(0));
  return Ok{};
}
/// dx last: the paper's runtime may let it take the place of x or dy.
Status run_fused(const HostCall& call) {
  const Geometry g = geometry(call);
  backward_filter(g, call.in(0), call.in(2), call.out(1), patches_of(call));
  if (call.op.writes.size() == 3) backward_bias(g, call.in(2), call.out(2));
  backward_data(g, call.in(1), call.in(2), call.out(0), patches_of(call));
  return Ok{};
}

constexpr std::array<HostKind, 5> kKinds{{
    {"Conv2dForward", forward_operands, run_forward},
    {"Conv2dBackwardData", data_operands, run_data},
    {"Conv2dBackwardFilter", filter_operands, run_filter},
    {"Conv2dBackwardBias", bias_operands, run_bias},
    {"Conv2dBackward", fused_operands, run_fused},
}};

}  // namespace

std::span<const HostKind> host_convolution_kinds() { return kKinds; }

}  // namespace superneurons
