// First contents and checksums, the same on host and device: integer hashes and exact scalings
// only.
#pragma once

#include <cstdint>
#include <string_view>

#ifdef __CUDACC__
#define SUPERNEURONS_BOTH __host__ __device__
#else
#define SUPERNEURONS_BOTH
#endif

namespace superneurons {

/// A bijective 64-bit mix (the finaliser of splitmix64: Steele, Lea, Flood, OOPSLA 2014).
SUPERNEURONS_BOTH inline std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
SUPERNEURONS_BOTH inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  return mix(mix(a) ^ b);
}

enum class Init : std::uint8_t { hashed, zeros, ones, uniform, labels };

/// 32-bit word `index` of a tensor's first content; `key` = mix(seed, tensor index).
SUPERNEURONS_BOTH inline std::uint32_t initial_word(Init init, float scale, std::uint64_t key,
                                                    std::uint64_t index) {
  union {
    float f;
    std::uint32_t u;
  } word;
  const std::uint64_t random = mix(key, index);
  switch (init) {
    case Init::zeros:
      return 0;
    case Init::ones:
      word.f = 1.0F;
      return word.u;
    case Init::uniform:  // 24 random bits: exact in float
      word.f = scale * (static_cast<float>(random >> 40) * (1.0F / 8388608.0F) - 1.0F);
      return word.u;
    case Init::labels:
      return static_cast<std::uint32_t>(random % static_cast<std::uint64_t>(scale));
    case Init::hashed:
      break;
  }
  return static_cast<std::uint32_t>(random);
}

/// Whether dropout keeps element `index`; `key` = mix(seed, op index). 24 random bits against the
/// keeping probability 1 - rate.
SUPERNEURONS_BOTH inline bool dropout_keeps(std::uint64_t key, std::uint64_t training_step,
                                            std::uint64_t index, float rate) {
  const std::uint64_t random = mix(key, mix(training_step, index));
  return static_cast<float>(random >> 40) * (1.0F / 16777216.0F) >= rate;
}

/// What 32-bit word `index` adds to a checksum; the sum modulo 2^64 does not depend on the order.
/// The last 1 to 3 bytes of a range count as a word padded with zeros.
SUPERNEURONS_BOTH inline std::uint64_t checksum_word(std::uint32_t word, std::uint64_t index) {
  return mix(index, word);
}

}  // namespace superneurons
