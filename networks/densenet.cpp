// DenseNet-BC: Huang, Liu, van der Maaten, Weinberger 2017 (arXiv 1608.06993), table 1.
#include <fmt/core.h>

#include "networks/models.h"

namespace superneurons {
namespace {

LayerId norm_relu_conv(Network& net, LayerId in, const ConvolutionOptions& options,
                       const std::string& at) {
  const LayerId x = relu(net, batch_norm(net, in, at + "/bn"), at + "/relu");
  return convolution(net, x, options, at + "/conv");
}

/// A bottleneck of 1x1 and 3x3 whose output is put behind its input. The sum of all inputs of a
/// block is quadratic in its layers, and so is the memory: each concatenation copies.
LayerId dense_layer(Network& net, LayerId in, std::int64_t growth, const std::string& at) {
  LayerId x =
      norm_relu_conv(net, in, {.channels = 4 * growth, .kernel = 1, .bias = false}, at + "/1");
  x = norm_relu_conv(net, x, {.channels = growth, .kernel = 3, .pad = 1, .bias = false}, at + "/2");
  return concat(net, {in, x}, at + "/concat");
}

/// Half of the channels, a quarter of the pixels.
LayerId transition(Network& net, LayerId in, const std::string& at) {
  const LayerId x = norm_relu_conv(
      net, in, {.channels = net[in].shape.channels / 2, .kernel = 1, .bias = false}, at);
  return average_pool(net, x, {.kernel = 2, .stride = 2}, at + "/pool");
}

}  // namespace

Network densenet(const DenseNetOptions& options) {
  Network net = image_network(options.name, options.image, options.classes);
  LayerId x = convolution(
      net, net.data(),
      {.channels = 2 * options.growth, .kernel = 7, .stride = 2, .pad = 3, .bias = false}, "conv1");
  x = relu(net, batch_norm(net, x, "bn1"), "relu1");
  x = max_pool(net, x, {.kernel = 3, .stride = 2, .pad = 1}, "pool1");
  for (std::size_t block = 0; block < options.blocks.size(); ++block) {
    for (std::int64_t i = 0; i < options.blocks[block]; ++i)
      x = dense_layer(net, x, options.growth, fmt::format("block{}/layer{}", block + 1, i + 1));
    if (block + 1 < options.blocks.size())
      x = transition(net, x, fmt::format("transition{}", block + 1));
  }
  x = relu(net, batch_norm(net, x, "bn2"), "relu2");
  x = average_pool(net, x, {.kernel = net[x].shape.height}, "avgpool");
  softmax_cross_entropy(net, linear(net, x, {.features = options.classes}, "fc"), "softmax");
  return net;
}

Network densenet121() { return densenet({}); }

}  // namespace superneurons
