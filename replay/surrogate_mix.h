// What a `verify` surrogate computes, word by word, the same on host and device.
//
//     digest = key(seed, op, training step if random) + sum over pieces p, words i of
//              digest_word(salt(p), i, word)                       any order, any parallelism
//     output word i of tensor t = output_word(output_key(digest, t), i)
//
// Words are 32 bits, counted from the first byte of the piece or of the written range (which need
// not be aligned). The last 1 to 3 bytes read as a word padded with zeros; of an output word as
// many bytes are written as are left. Nothing of the choice and no address enters.
#pragma once

#include "replay/initial.h"

namespace superneurons {

/// `random`: the op draws from (seed, op, training step).
SUPERNEURONS_BOTH inline std::uint64_t surrogate_key(std::uint64_t seed, std::uint32_t op,
                                                     bool random, int training_step) {
  const std::uint64_t key = mix(seed, op);
  return random ? mix(key, static_cast<std::uint64_t>(training_step) + 1) : key;
}

/// `read`: index among op.reads; `offset`: first byte of the piece, counted from the read range's.
SUPERNEURONS_BOTH inline std::uint64_t surrogate_salt(std::uint64_t read, std::uint64_t offset) {
  return mix(read, offset);
}

SUPERNEURONS_BOTH inline std::uint64_t surrogate_digest_word(std::uint64_t salt,
                                                             std::uint64_t index,
                                                             std::uint32_t word) {
  return mix(salt + index, word);
}

SUPERNEURONS_BOTH inline std::uint64_t surrogate_output_key(std::uint64_t digest,
                                                            std::uint32_t tensor) {
  return mix(digest, tensor);
}

SUPERNEURONS_BOTH inline std::uint32_t surrogate_output_word(std::uint64_t key,
                                                             std::uint64_t index) {
  return static_cast<std::uint32_t>(mix(key + index) >> 32);
}

}  // namespace superneurons
