// Convolutions of 1x1 filters as matrix products: cuBLAS does them faster than cuDNN's
// deterministic algorithms, above all backward and with a stride.
#pragma once

#include <optional>
#include <string_view>

#include "replay/cuda/native.h"

namespace superneurons {

/// How pixels lie in the matrices. `images`: as in the tensor, one product per image. `packed`: the
/// pixels of all images in one row per channel, one product; worth its copies where images are
/// small.
enum class PixelOrder : std::uint8_t { images, packed };
/// "CUBLAS" or "CUBLAS_PACKED".
std::string_view pointwise_name(PixelOrder order);
std::optional<PixelOrder> find_pointwise(std::string_view name);

/// Workspace without which it cannot run, or nothing if the shape is no 1x1 convolution without
/// padding. What is granted beyond it goes to cuBLAS.
std::optional<Bytes> pointwise_need(const ConvolutionShape& shape, Direction direction,
                                    PixelOrder order);

/// Operands as in Convolution::run. Deterministic: partial sums are added up in a fixed order.
Status run_pointwise(Libraries& libraries, const ConvolutionShape& shape, Direction direction,
                     PixelOrder order, bool tf32, const KernelCall& call, const float* first,
                     const float* second, float* out);

}  // namespace superneurons
