// A network that holds every kind of layer.
#pragma once

#include "networks/network.h"

namespace superneurons {

/// Odd image sizes, windows that overlap and windows that do not fill the image.
inline Network every_layer() {
  Network net = image_network("every_layer", {3, 29, 27}, 10);
  LayerId x = convolution(net, net.data(), {.channels = 16, .kernel = 3, .stride = 1, .pad = 1});
  x = relu(net, x);
  x = lrn(net, x);
  x = max_pool(net, x, {.kernel = 3, .stride = 2, .pad = 1});
  const LayerId left =
      batch_norm(net, convolution(net, x, {.channels = 24, .kernel = 1, .bias = false}));
  const LayerId right =
      batch_norm(net, convolution(net, x, {.channels = 24, .kernel = 3, .pad = 1, .bias = false}));
  x = relu(net, add(net, {left, right}));
  x = concat(net, {x, average_pool(net, x, {.kernel = 3, .stride = 1, .pad = 1})});
  x = convolution(net, x, {.channels = 28, .kernel = 1, .stride = 2});
  x = convolution(net, x, {.channels = 20, .kernel = 5, .stride = 2, .pad = 2});
  x = average_pool(net, relu(net, x), {.kernel = 2, .stride = 2});
  x = dropout(net, relu(net, linear(net, x, {.features = 33})), 0.4);
  softmax_cross_entropy(net, linear(net, x, {.features = 10}));
  return net;
}

}  // namespace superneurons
