#include "replay/cuda/pointwise.h"

#include <algorithm>

#include "replay/cuda/elementwise.h"
#include "replay/cuda/pointwise_copy.h"

namespace superneurons {
namespace {

constexpr std::int64_t kAlign = 256;
std::int64_t aligned_bytes(std::int64_t floats) {
  return (floats * 4 + kAlign - 1) / kAlign * kAlign;
}

/// Matrices that the workspace holds, in floats; 0 where the operand is used as it is.
struct Pieces {
  std::int64_t x = 0, y = 0, partial = 0;
  int parts = 1;  // partial products of the filter gradient
  std::int64_t bytes() const {
    return aligned_bytes(x) + aligned_bytes(y) + aligned_bytes(partial);
  }
};

/// Parts of a filter gradient over packed pixels: a divisor of n with which 128x128 tiles fill the
/// multiprocessors of a large device twice.
int parts_of(const ConvolutionShape& s) {
  constexpr std::int64_t kTile = 128, kWanted = 264;
  const std::int64_t tiles = ((s.c + kTile - 1) / kTile) * ((s.k + kTile - 1) / kTile);
  int parts = static_cast<int>(std::clamp<std::int64_t>(kWanted / tiles, 1, s.n));
  while (s.n % parts != 0) --parts;
  return parts;
}

Pieces pieces_of(const ConvolutionShape& s, Direction direction, PixelOrder order) {
  const bool packed = order == PixelOrder::packed;
  Pieces pieces;
  if (packed || s.stride > 1) pieces.x = std::int64_t{s.n} * s.c * s.oh * s.ow;
  if (packed) pieces.y = s.y();
  if (direction == Direction::filter) {
    pieces.parts = packed ? parts_of(s) : s.n;
    if (pieces.parts > 1) pieces.partial = pieces.parts * s.weight();
  }
  return pieces;
}

/// One product, or a batch of them at fixed distances: c (m x n, column-major) = op(a) op(b).
struct Product {
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  std::int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
  std::int64_t step_a = 0, step_b = 0, step_c = 0;
  int batch = 1;
};

class Pointwise {
 public:
  Pointwise(Libraries& libraries, const ConvolutionShape& s, Direction direction, PixelOrder order,
            bool tf32, const KernelCall& call)
      : libraries_(libraries), s_(s), pieces_(pieces_of(s, direction, order)), tf32_(tf32) {
    packed_ = order == PixelOrder::packed;
    pixels_ = std::int64_t{s.oh} * s.ow;
    row_ = packed_ ? s.n * pixels_ : pixels_;
    std::byte* at = call.workspace;
    const auto take = [&](std::int64_t floats) {
      auto* piece = reinterpret_cast<float*>(at);
      if (floats > 0) at += aligned_bytes(floats);
      return piece;
    };
    x_ = take(pieces_.x);
    y_ = take(pieces_.y);
    partial_ = take(pieces_.partial);
    rest_ = at;
    rest_bytes_ = call.workspace_bytes.count - pieces_.bytes();
  }

  Status forward(const float* x, const float* weight, float* y) {
    auto in = gather_x(x);
    if (!in) return in.error();
    float* out = pieces_.y > 0 ? y_ : y;
    Product product = over_pixels(s_.c, s_.k);
    product.ldb = s_.c;
    if (Status ran = multiply(product, *in, weight, out); !ran) return ran;
    if (pieces_.y > 0) SUPERNEURONS_TRY(launch_scatter_pixels(y_, y, copy_y(), libraries_.stream));
    return Ok{};
  }

  Status data(const float* weight, const float* dy, float* dx) {
    auto in = gather_y(dy);
    if (!in) return in.error();
    float* out = pieces_.x > 0 ? x_ : dx;
    Product product = over_pixels(s_.k, s_.c);
    product.op_b = CUBLAS_OP_T;
    product.ldb = s_.c;
    if (Status ran = multiply(product, *in, weight, out); !ran) return ran;
    if (pieces_.x > 0) SUPERNEURONS_TRY(launch_scatter_pixels(x_, dx, copy_x(), libraries_.stream));
    return Ok{};
  }

  Status filter(const float* x, const float* dy, float* dweight) {
    auto in = gather_x(x);
    if (!in) return in.error();
    auto gradient = gather_y(dy);
    if (!gradient) return gradient.error();
    Product product;
    product.op_a = CUBLAS_OP_T;
    product.m = s_.c;
    product.n = s_.k;
    product.k = packed_ ? row_ / pieces_.parts : pixels_;
    product.lda = product.ldb = row_;
    product.ldc = s_.c;
    product.batch = pieces_.parts;
    product.step_a = packed_ ? product.k : s_.c * pixels_;
    product.step_b = packed_ ? product.k : s_.k * pixels_;
    product.step_c = s_.weight();
    float* out = pieces_.partial > 0 ? partial_ : dweight;
    if (Status ran = multiply(product, *in, *gradient, out); !ran) return ran;
    if (pieces_.partial > 0)
      SUPERNEURONS_TRY(
          launch_column_sums(partial_, dweight, pieces_.parts, s_.weight(), libraries_.stream));
    return Ok{};
  }

 private:
  /// Row-major [out][pixels] = filters [in][pixels], which is column-major (pixels x out).
  Product over_pixels(std::int64_t in, std::int64_t out) const {
    Product product;
    product.m = row_;
    product.n = out;
    product.k = in;
    product.lda = product.ldc = row_;
    if (!packed_) {
      product.batch = s_.n;
      product.step_a = in * pixels_;
      product.step_c = out * pixels_;
    }
    return product;
  }

  PixelCopy copy(int channels, int h, int w, int stride) const {
    return {s_.n,
            channels,
            h,
            w,
            s_.oh,
            s_.ow,
            stride,
            packed_ ? pixels_ : channels * pixels_,
            packed_ ? row_ : pixels_};
  }
  PixelCopy copy_x() const { return copy(s_.c, s_.h, s_.w, s_.stride); }
  PixelCopy copy_y() const { return copy(s_.k, s_.oh, s_.ow, 1); }

  Result<const float*> gather_x(const float* x) const {
    if (pieces_.x == 0) return x;
    SUPERNEURONS_TRY(launch_gather_pixels(x, x_, copy_x(), libraries_.stream));
    return static_cast<const float*>(x_);
  }
  Result<const float*> gather_y(const float* y) const {
    if (pieces_.y == 0) return y;
    SUPERNEURONS_TRY(launch_gather_pixels(y, y_, copy_y(), libraries_.stream));
    return static_cast<const float*>(y_);
  }

  /// Handed its workspace, cuBLAS repeats its results to the bit.
  Status multiply(const Product& p, const float* a, const float* b, float* c) const {
    const float one = 1, zero = 0;
    cublasHandle_t cublas = libraries_.cublas.get();
    const bool some = rest_bytes_ > 0;
    SUPERNEURONS_TRY(cublasSetWorkspace(cublas, some ? rest_ : nullptr,
                                        some ? static_cast<std::size_t>(rest_bytes_) : 0));
    SUPERNEURONS_TRY(
        cublasSetMathMode(cublas, tf32_ ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH));
    SUPERNEURONS_TRY(cublasSgemmStridedBatched(
        cublas, p.op_a, p.op_b, static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k),
        &one, a, static_cast<int>(p.lda), p.step_a, b, static_cast<int>(p.ldb), p.step_b, &zero, c,
        static_cast<int>(p.ldc), p.step_c, p.batch));
    return Ok{};
  }

  Libraries& libraries_;
  ConvolutionShape s_;
  Pieces pieces_;
  bool tf32_, packed_ = false;
  std::int64_t pixels_ = 0;  // of an output image
  std::int64_t row_ = 0;     // pixels of one row of a matrix
  float *x_ = nullptr, *y_ = nullptr, *partial_ = nullptr;
  std::byte* rest_ = nullptr;
  std::int64_t rest_bytes_ = 0;
};

}  // namespace

std::string_view pointwise_name(PixelOrder order) {
  return order == PixelOrder::images ? "CUBLAS" : "CUBLAS_PACKED";
}

std::optional<PixelOrder> find_pointwise(std::string_view name) {
  for (PixelOrder order : {PixelOrder::images, PixelOrder::packed})
    if (pointwise_name(order) == name) return order;
  return {};
}

std::optional<Bytes> pointwise_need(const ConvolutionShape& s, Direction direction,
                                    PixelOrder order) {
  const std::int64_t row = std::int64_t{s.n} * s.oh * s.ow;
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  const bool fits = s.r == 1 && s.s == 1 && s.pad_h == 0 && s.pad_w == 0 &&
                    s.oh == (s.h - 1) / s.stride + 1 && s.ow == (s.w - 1) / s.stride + 1 &&
                    row < kMost && std::int64_t{s.h} * s.w < kMost;
  if (!fits) return {};
  return Bytes{pieces_of(s, direction, order).bytes()};
}

Status run_pointwise(Libraries& libraries, const ConvolutionShape& shape, Direction direction,
                     PixelOrder order, bool tf32, const KernelCall& call, const float* first,
                     const float* second, float* out) {
  Pointwise pointwise(libraries, shape, direction, order, tf32, call);
  switch (direction) {
    case Direction::forward:
      return pointwise.forward(first, second, out);
    case Direction::data:
      return pointwise.data(first, second, out);
    case Direction::filter:
      break;
  }
  return pointwise.filter(first, second, out);
}

}  // namespace superneurons
