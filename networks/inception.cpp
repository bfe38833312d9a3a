// Inception v4: Szegedy, Ioffe, Vanhoucke, Alemi 2016 (arXiv 1602.07261), figures 3 to 9. Every
// convolution has no bias and is followed by batch normalisation and ReLU.
#include <fmt/core.h>

#include "networks/models.h"

namespace superneurons {
namespace {

/// Padding that keeps the size at stride 1.
Extent same(Extent kernel) { return {kernel.height / 2, kernel.width / 2}; }

class Inception {
 public:
  explicit Inception(const InceptionOptions& options)
      : options_(options), net_(image_network(options.name, options.image, options.classes)) {}

  Network build() {
    LayerId x = stem(net_.data());
    for (int i = 1; i <= options_.blocks_a; ++i) x = block_a(x, fmt::format("a{}", i));
    x = reduction_a(x, "reduction_a");
    for (int i = 1; i <= options_.blocks_b; ++i) x = block_b(x, fmt::format("b{}", i));
    x = reduction_b(x, "reduction_b");
    for (int i = 1; i <= options_.blocks_c; ++i) x = block_c(x, fmt::format("c{}", i));
    x = average_pool(net_, x, {.kernel = net_[x].shape.height}, "avgpool");
    x = dropout(net_, x, 0.2, "dropout");
    softmax_cross_entropy(net_, linear(net_, x, {.features = options_.classes}, "fc"), "softmax");
    return std::move(net_);
  }

 private:
  LayerId conv(LayerId in, std::int64_t channels, Extent kernel, std::int64_t stride, Extent pad,
               const std::string& at) {
    const ConvolutionOptions options = {.channels = channels / options_.divisor,
                                        .kernel = kernel,
                                        .stride = stride,
                                        .pad = pad,
                                        .bias = false};
    LayerId x = convolution(net_, in, options, at + "/conv");
    return relu(net_, batch_norm(net_, x, at + "/bn"), at + "/relu");
  }
  /// Stride 1, padded.
  LayerId conv(LayerId in, std::int64_t channels, Extent kernel, const std::string& at) {
    return conv(in, channels, kernel, 1, same(kernel), at);
  }
  /// 3x3 with stride 2, not padded ("V" in the figures).
  LayerId halve(LayerId in, std::int64_t channels, const std::string& at) {
    return conv(in, channels, 3, 2, 0, at);
  }
  LayerId halve_by_pool(LayerId in, const std::string& at) {
    return max_pool(net_, in, {.kernel = 3, .stride = 2}, at + "/pool");
  }
  LayerId pooled_conv(LayerId in, std::int64_t channels, const std::string& at) {
    const LayerId x = average_pool(net_, in, {.kernel = 3, .stride = 1, .pad = 1}, at + "/pool");
    return conv(x, channels, 1, at);
  }
  LayerId join(std::vector<LayerId> branches, const std::string& at) {
    return concat(net_, std::move(branches), at + "/concat");
  }

  /// Figure 3.
  LayerId stem(LayerId x) {
    x = halve(x, 32, "stem/1");
    x = conv(x, 32, 3, 1, 0, "stem/2");
    x = conv(x, 64, 3, "stem/3");
    x = join({halve_by_pool(x, "stem/4"), halve(x, 96, "stem/4")}, "stem/4");
    LayerId left = conv(x, 64, 1, "stem/5l1");
    left = conv(left, 96, 3, 1, 0, "stem/5l2");
    LayerId right = conv(x, 64, 1, "stem/5r1");
    right = conv(right, 64, {7, 1}, "stem/5r2");
    right = conv(right, 64, {1, 7}, "stem/5r3");
    right = conv(right, 96, 3, 1, 0, "stem/5r4");
    x = join({left, right}, "stem/5");
    return join({halve(x, 192, "stem/6"), halve_by_pool(x, "stem/6")}, "stem/6");
  }

  /// Figure 4.
  LayerId block_a(LayerId in, const std::string& at) {
    const LayerId pooled = pooled_conv(in, 96, at + "/1");
    const LayerId single = conv(in, 96, 1, at + "/2");
    LayerId twice = conv(in, 64, 1, at + "/3a");
    twice = conv(twice, 96, 3, at + "/3b");
    LayerId thrice = conv(in, 64, 1, at + "/4a");
    thrice = conv(thrice, 96, 3, at + "/4b");
    thrice = conv(thrice, 96, 3, at + "/4c");
    return join({pooled, single, twice, thrice}, at);
  }

  /// Figure 7 with k, l, m, n of table 1: 192, 224, 256, 384.
  LayerId reduction_a(LayerId in, const std::string& at) {
    const LayerId pooled = halve_by_pool(in, at + "/1");
    const LayerId single = halve(in, 384, at + "/2");
    LayerId thrice = conv(in, 192, 1, at + "/3a");
    thrice = conv(thrice, 224, 3, at + "/3b");
    thrice = halve(thrice, 256, at + "/3c");
    return join({pooled, single, thrice}, at);
  }

  /// Figure 5. Its third branch names 1x7 twice; 1x7 and then 7x1 is meant, as in the release.
  LayerId block_b(LayerId in, const std::string& at) {
    const LayerId pooled = pooled_conv(in, 128, at + "/1");
    const LayerId single = conv(in, 384, 1, at + "/2");
    LayerId crossed = conv(in, 192, 1, at + "/3a");
    crossed = conv(crossed, 224, {1, 7}, at + "/3b");
    crossed = conv(crossed, 256, {7, 1}, at + "/3c");
    LayerId twice = conv(in, 192, 1, at + "/4a");
    twice = conv(twice, 192, {1, 7}, at + "/4b");
    twice = conv(twice, 224, {7, 1}, at + "/4c");
    twice = conv(twice, 224, {1, 7}, at + "/4d");
    twice = conv(twice, 256, {7, 1}, at + "/4e");
    return join({pooled, single, crossed, twice}, at);
  }

  /// Figure 8.
  LayerId reduction_b(LayerId in, const std::string& at) {
    const LayerId pooled = halve_by_pool(in, at + "/1");
    LayerId twice = conv(in, 192, 1, at + "/2a");
    twice = halve(twice, 192, at + "/2b");
    LayerId crossed = conv(in, 256, 1, at + "/3a");
    crossed = conv(crossed, 256, {1, 7}, at + "/3b");
    crossed = conv(crossed, 320, {7, 1}, at + "/3c");
    crossed = halve(crossed, 320, at + "/3d");
    return join({pooled, twice, crossed}, at);
  }

  /// Figure 6.
  LayerId block_c(LayerId in, const std::string& at) {
    const LayerId pooled = pooled_conv(in, 256, at + "/1");
    const LayerId single = conv(in, 256, 1, at + "/2");
    const LayerId split = conv(in, 384, 1, at + "/3a");
    const LayerId wide = conv(split, 256, {1, 3}, at + "/3b");
    const LayerId high = conv(split, 256, {3, 1}, at + "/3c");
    LayerId late = conv(in, 384, 1, at + "/4a");
    late = conv(late, 448, {1, 3}, at + "/4b");
    late = conv(late, 512, {3, 1}, at + "/4c");
    const LayerId late_high = conv(late, 256, {3, 1}, at + "/4d");
    const LayerId late_wide = conv(late, 256, {1, 3}, at + "/4e");
    return join({pooled, single, wide, high, late_high, late_wide}, at);
  }

  const InceptionOptions& options_;
  Network net_;
};

}  // namespace

Network inception(const InceptionOptions& options) { return Inception(options).build(); }
Network inception_v4() { return inception({}); }

}  // namespace superneurons
