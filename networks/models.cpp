#include "networks/models.h"

#include <fmt/core.h>

namespace superneurons {
namespace {

/// Runs of 3x3 convolutions with ReLU, each ended by a 2x2 pooling, then three linear layers.
Network vgg(std::string name, const std::array<int, 5>& depths) {
  Network net = image_network(std::move(name), {3, 227, 227}, 1000);
  const std::array<std::int64_t, 5> channels = {64, 128, 256, 512, 512};
  LayerId x = net.data();
  for (std::size_t stage = 0; stage < depths.size(); ++stage) {
    for (int i = 0; i < depths[stage]; ++i) {
      const std::string number = fmt::format("{}_{}", stage + 1, i + 1);
      x = convolution(net, x, {.channels = channels[stage], .kernel = 3, .pad = 1},
                      "conv" + number);
      x = relu(net, x, "relu" + number);
    }
    x = max_pool(net, x, {.kernel = 2, .stride = 2}, fmt::format("pool{}", stage + 1));
  }
  for (int i = 0; i < 2; ++i) {
    x = linear(net, x, {.features = 4096}, fmt::format("fc{}", i + 6));
    x = relu(net, x, fmt::format("relu{}", i + 6));
    x = dropout(net, x, 0.5, fmt::format("drop{}", i + 6));
  }
  softmax_cross_entropy(net, linear(net, x, {.features = 1000}, "fc8"), "softmax");
  return net;
}

LayerId conv_bn(Network& net, LayerId in, const ConvolutionOptions& options,
                const std::string& conv, const std::string& norm) {
  return batch_norm(net, convolution(net, in, options, conv), norm);
}

/// Bottleneck with the stride on its first 1x1 convolution; the shortcut is branch 0.
LayerId bottleneck(Network& net, LayerId in, std::int64_t width, std::int64_t stride,
                   const std::string& at) {
  LayerId shortcut = in;
  if (net[in].shape.channels != 4 * width || stride != 1)
    shortcut =
        conv_bn(net, in, {.channels = 4 * width, .kernel = 1, .stride = stride, .bias = false},
                at + "/conv0", at + "/bn0");
  LayerId x = conv_bn(net, in, {.channels = width, .kernel = 1, .stride = stride, .bias = false},
                      at + "/conv1", at + "/bn1");
  x = relu(net, x, at + "/relu1");
  x = conv_bn(net, x, {.channels = width, .kernel = 3, .pad = 1, .bias = false}, at + "/conv2",
              at + "/bn2");
  x = relu(net, x, at + "/relu2");
  x = conv_bn(net, x, {.channels = 4 * width, .kernel = 1, .bias = false}, at + "/conv3",
              at + "/bn3");
  return relu(net, add(net, {shortcut, x}, at + "/add"), at + "/relu3");
}

/// Convolution of AlexNet with its ReLU.
LayerId conv_relu(Network& net, LayerId in, const ConvolutionOptions& options, int number) {
  return relu(net, convolution(net, in, options, fmt::format("conv{}", number)),
              fmt::format("relu{}", number));
}

}  // namespace

Network alexnet() {
  Network net = image_network("alexnet", {3, 227, 227}, 1000);
  const PoolOptions pool = {.kernel = 3, .stride = 2};
  LayerId x = conv_relu(net, net.data(), {.channels = 96, .kernel = 11, .stride = 4}, 1);
  x = max_pool(net, lrn(net, x, "lrn1"), pool, "pool1");
  x = conv_relu(net, x, {.channels = 256, .kernel = 5, .pad = 2}, 2);
  x = max_pool(net, lrn(net, x, "lrn2"), pool, "pool2");
  x = conv_relu(net, x, {.channels = 384, .kernel = 3, .pad = 1}, 3);
  x = conv_relu(net, x, {.channels = 384, .kernel = 3, .pad = 1}, 4);
  x = conv_relu(net, x, {.channels = 256, .kernel = 3, .pad = 1}, 5);
  x = max_pool(net, x, pool, "pool5");
  for (int i = 1; i <= 2; ++i) {
    x = linear(net, x, {.features = 4096}, fmt::format("fc{}", i));
    x = relu(net, x, fmt::format("relu{}", i + 5));
    x = dropout(net, x, 0.5, fmt::format("drop{}", i));
  }
  softmax_cross_entropy(net, linear(net, x, {.features = 1000}, "fc3"), "softmax");
  return net;
}

Network vgg16() { return vgg("vgg16", {2, 2, 3, 3, 3}); }
Network vgg19() { return vgg("vgg19", {2, 2, 4, 4, 4}); }

Network resnet(std::int64_t n1, std::int64_t n2, std::int64_t n3, std::int64_t n4) {
  const std::array<std::int64_t, 4> blocks = {n1, n2, n3, n4};
  Network net =
      image_network(fmt::format("resnet:{},{},{},{}", n1, n2, n3, n4), {3, 227, 227}, 1000);
  LayerId x =
      conv_bn(net, net.data(), {.channels = 64, .kernel = 7, .stride = 2, .pad = 3, .bias = false},
              "conv1", "bn1");
  x = max_pool(net, relu(net, x, "relu1"), {.kernel = 3, .stride = 2}, "pool1");
  for (std::size_t stage = 0; stage < blocks.size(); ++stage)
    for (std::int64_t i = 0; i < blocks[stage]; ++i)
      x = bottleneck(net, x, std::int64_t{64} << stage, stage > 0 && i == 0 ? 2 : 1,
                     fmt::format("stage{}/block{}", stage + 1, i + 1));
  x = average_pool(net, x, {.kernel = 7, .stride = 1}, "avgpool");
  softmax_cross_entropy(net, linear(net, x, {.features = 1000}, "fc"), "softmax");
  return net;
}

Network small_cnn() {
  Network net = image_network("small_cnn", {3, 32, 32}, 10);
  LayerId x = conv_bn(net, net.data(), {.channels = 8, .kernel = 3, .pad = 1, .bias = false},
                      "conv1", "bn1");
  x = max_pool(net, relu(net, x, "relu1"), {.kernel = 2, .stride = 2}, "pool1");
  x = lrn(net, x, "lrn1");
  const LayerId narrow = convolution(net, x, {.channels = 4, .kernel = 1}, "conv2a");
  const LayerId wide = convolution(net, x, {.channels = 4, .kernel = 3, .pad = 1}, "conv2b");
  x = relu(net, concat(net, {narrow, wide}, "concat1"), "relu2");
  const LayerId branch =
      conv_bn(net, x, {.channels = 8, .kernel = 3, .pad = 1, .bias = false}, "conv3", "bn3");
  x = relu(net, add(net, {x, branch}, "add1"), "relu3");
  x = average_pool(net, x, {.kernel = 4, .stride = 4}, "avgpool");
  x = dropout(net, x, 0.25, "drop1");
  softmax_cross_entropy(net, linear(net, x, {.features = 10}, "fc1"), "softmax");
  return net;
}

}  // namespace superneurons
