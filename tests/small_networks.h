// The networks of the literature, small enough to train on a host: the same code, fewer blocks and
// channels.
#pragma once

#include "networks/models.h"

namespace superneurons {

/// Rectangular filters, padded average pooling, concatenations of up to six.
inline Network small_inception(std::int64_t divisor = 32) {
  return inception({.name = "small_inception",
                    .image = {3, 75, 75},
                    .blocks_a = 1,
                    .blocks_b = 1,
                    .blocks_c = 1,
                    .divisor = divisor,
                    .classes = 5});
}

inline Network small_densenet() {
  return densenet({.name = "small_densenet",
                   .image = {3, 32, 32},
                   .blocks = {3, 2, 2},
                   .growth = 4,
                   .classes = 5});
}

}  // namespace superneurons
