// Surrogate kernels on the host: any trace, no arithmetic of its own (replay/surrogate_mix.h).
#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "replay/kernels.h"
#include "replay/surrogate_mix.h"
#include "replay/surrogate_pieces.h"

namespace superneurons {
namespace {

std::size_t word_bytes(std::int64_t at, std::int64_t size) {
  return static_cast<std::size_t>(std::min<std::int64_t>(4, size - at));
}

std::uint64_t digest(const std::byte* data, std::int64_t size, std::uint64_t salt) {
  std::uint64_t sum = 0;
  for (std::int64_t at = 0; at < size; at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, data + at, word_bytes(at, size));
    sum += surrogate_digest_word(salt, static_cast<std::uint64_t>(at / 4), word);
  }
  return sum;
}

void write(std::byte* data, std::int64_t size, std::uint64_t key) {
  for (std::int64_t at = 0; at < size; at += 4) {
    const std::uint32_t word = surrogate_output_word(key, static_cast<std::uint64_t>(at / 4));
    std::memcpy(data + at, &word, word_bytes(at, size));
  }
}

bool contains(const std::vector<TensorId>& list, TensorId tensor) {
  return std::find(list.begin(), list.end(), tensor) != list.end();
}

class Verify final : public Kernels {
 public:
  Status prepare(const Trace& trace, std::uint64_t seed) override {
    trace_ = &trace;
    seed_ = seed;
    pieces_ = surrogate_pieces(trace);
    return Ok{};
  }

  /// Everything is read before anything is written: outputs may be in place.
  Status run(const KernelCall& call, void*) override {
    const Op& op = (*trace_)[call.op];
    std::uint64_t sum = surrogate_key(seed_, call.op.index, op.random, call.training_step);
    std::uint64_t once = 0;  // what only outputs in op.once depend on
    for (const SurrogatePiece& piece : pieces_[call.op.index]) {
      if (call.reads[piece.read] == nullptr) continue;
      const std::uint64_t salt =
          surrogate_salt(piece.read, static_cast<std::uint64_t>(piece.offset.count));
      (piece.once ? once : sum) +=
          digest(call.reads[piece.read] + piece.offset.count, piece.length.count, salt);
    }
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const TensorId tensor = op.writes[i].tensor;
      if (call.writes[i] == nullptr) continue;
      if (contains(op.choices[call.choice].omits, tensor)) continue;
      const std::uint64_t base = contains(op.once, tensor) ? sum + once : sum;
      write(call.writes[i], op.writes[i].length.count, surrogate_output_key(base, tensor.index));
    }
    return Ok{};
  }

 private:
  const Trace* trace_ = nullptr;
  std::uint64_t seed_ = 0;
  std::vector<std::vector<SurrogatePiece>> pieces_;
};

class Timed final : public Kernels {
 public:
  Status prepare(const Trace& trace, std::uint64_t) override {
    trace_ = &trace;
    return Ok{};
  }

  Status run(const KernelCall& call, void*) override {
    using Clock = std::chrono::steady_clock;
    const Op& op = (*trace_)[call.op];
    const Clock::time_point end =
        Clock::now() + std::chrono::nanoseconds(op.choices[call.choice].ns.count);
    std::uint8_t sum = 0;
    for (std::size_t i = 0; i < op.reads.size(); ++i)
      if (call.reads[i] != nullptr)
        for (std::int64_t at = 0; at < op.reads[i].length.count; at += kSample)
          sum = static_cast<std::uint8_t>(sum + std::to_integer<std::uint8_t>(call.reads[i][at]));
    for (std::size_t i = 0; i < op.writes.size(); ++i)
      if (call.writes[i] != nullptr)
        for (std::int64_t at = 0; at < op.writes[i].length.count; at += kSample)
          call.writes[i][at] = std::byte{sum};
    // A sleep oversleeps by tens of microseconds, so the rest is spun.
    std::this_thread::sleep_until(end - std::chrono::microseconds(200));
    while (Clock::now() < end) std::this_thread::yield();
    return Ok{};
  }

 private:
  static constexpr std::int64_t kSample = 4096;  // one byte per page
  const Trace* trace_ = nullptr;
};

}  // namespace

std::unique_ptr<Kernels> make_host_surrogate_kernels(SurrogateMode mode) {
  if (mode == SurrogateMode::verify) return std::make_unique<Verify>();
  return std::make_unique<Timed>();
}

}  // namespace superneurons
