// Random layer graphs for property tests: chains, fan-out, adds and concats of anything made
// before.
#pragma once

#include <cstdint>
#include <random>

#include "networks/network.h"

namespace superneurons {

inline Network random_network(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  Network net = image_network("random", {4, 6, 6}, 3);
  std::vector<LayerId> made = {net.data()};  // all of the same shape
  std::vector<bool> read = {false};
  const auto pick = [&] {
    const std::size_t back = below(2) ? 0 : below(made.size());  // often the newest: chains
    read[made.size() - 1 - back] = true;
    return made[made.size() - 1 - back];
  };
  const auto several = [&] {
    std::vector<LayerId> ids(1 + below(3));
    for (LayerId& id : ids) id = pick();
    return ids;
  };
  const ConvolutionOptions conv = {.channels = 4, .kernel = 3, .pad = 1, .bias = below(2) == 0};
  const ConvolutionOptions row = {.channels = 4, .kernel = {1, 3}, .pad = {0, 1}, .bias = false};
  const PoolOptions pool = {.kernel = 3, .stride = 1, .pad = 1};
  const auto layer = [&] {
    switch (below(11)) {
      case 0:
        return convolution(net, pick(), conv);
      case 1:
        return convolution(net, pick(), below(2) == 0 ? conv : row);
      case 2:
      case 3:
        return relu(net, pick());
      case 4:
        return batch_norm(net, pick());
      case 5:
        return max_pool(net, pick(), pool);
      case 6:
        return average_pool(net, pick(), pool);
      case 7:
        return lrn(net, pick());
      case 8:
        return dropout(net, pick(), 0.5);
      case 9:
        return add(net, several());
      default:
        return convolution(net, concat(net, several()), {.channels = 4, .kernel = 1});
    }
  };
  for (std::uint64_t left = 1 + below(20); left > 0; --left) {
    made.push_back(layer());
    read.push_back(false);
  }
  std::vector<LayerId> ends;
  for (std::size_t i = 0; i < made.size(); ++i)
    if (!read[i]) ends.push_back(made[i]);
  const LayerId last = ends.size() == 1 ? ends[0] : add(net, ends);
  softmax_cross_entropy(net, linear(net, last, {.features = 3}));
  return net;
}

}  // namespace superneurons
