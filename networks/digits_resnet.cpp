// The smallest of the ResNets for small images (He et al. 2016, section 4.2: 6n + 2 layers, n = 1),
// with half its channels, for images of 8x8.
#include "networks/models.h"

namespace superneurons {
namespace {

LayerId conv_bn(Network& net, LayerId in, const ConvolutionOptions& options, const std::string& at,
                const std::string& number) {
  return batch_norm(net, convolution(net, in, options, at + "conv" + number), at + "bn" + number);
}

/// Two 3x3 convolutions around which a shortcut leads; it has a convolution where sizes change.
LayerId basic_block(Network& net, LayerId in, std::int64_t channels, std::int64_t stride,
                    const std::string& at) {
  LayerId shortcut = in;
  if (net[in].shape.channels != channels || stride != 1)
    shortcut = conv_bn(
        net, in, {.channels = channels, .kernel = 1, .stride = stride, .bias = false}, at, "0");
  LayerId x = conv_bn(
      net, in, {.channels = channels, .kernel = 3, .stride = stride, .pad = 1, .bias = false}, at,
      "1");
  x = relu(net, x, at + "relu1");
  x = conv_bn(net, x, {.channels = channels, .kernel = 3, .pad = 1, .bias = false}, at, "2");
  return relu(net, add(net, {shortcut, x}, at + "add"), at + "relu2");
}

}  // namespace

Network digits_resnet() {
  Network net = image_network("digits_resnet", {1, 8, 8}, 10);
  LayerId x =
      conv_bn(net, net.data(), {.channels = 8, .kernel = 3, .pad = 1, .bias = false}, "", "1");
  x = relu(net, x, "relu1");
  x = basic_block(net, x, 8, 1, "stage1/");
  x = basic_block(net, x, 16, 2, "stage2/");
  x = basic_block(net, x, 32, 2, "stage3/");
  x = average_pool(net, x, {.kernel = 2, .stride = 1}, "avgpool");
  softmax_cross_entropy(net, linear(net, x, {.features = 10}, "fc"), "softmax");
  return net;
}

}  // namespace superneurons
