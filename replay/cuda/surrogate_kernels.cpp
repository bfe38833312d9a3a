// Surrogate kernels on CUDA: the same bytes as those of the host (replay/surrogate_mix.h).
#include <algorithm>
#include <utility>
#include <vector>

#include "replay/cuda/check.h"
#include "replay/cuda/memory_kernels.h"
#include "replay/cuda/surrogate.h"
#include "replay/kernels.h"
#include "replay/surrogate_mix.h"
#include "replay/surrogate_pieces.h"

namespace superneurons {
namespace {

bool contains(const std::vector<TensorId>& list, TensorId tensor) {
  return std::find(list.begin(), list.end(), tensor) != list.end();
}

/// Runs on one stream, so one pair of sums serves every op in turn.
class SurrogateBase : public Kernels {
 public:
  Bytes outside_bytes() const override { return {sizeof(SurrogateSums)}; }

 protected:
  Status open(const Trace& trace, std::uint64_t seed) {
    trace_ = &trace;
    seed_ = seed;
    if (memory_ != nullptr) return Ok{};
    auto memory = make_device_memory(sizeof(SurrogateSums));
    if (!memory) return memory.error();
    memory_ = std::move(*memory);
    SUPERNEURONS_TRY(cudaMemset(memory_.get(), 0, sizeof(SurrogateSums)));
    SUPERNEURONS_TRY(cudaDeviceSynchronize());
    return Ok{};
  }
  SurrogateSums* sums() const { return reinterpret_cast<SurrogateSums*>(memory_.get()); }

  const Trace* trace_ = nullptr;
  std::uint64_t seed_ = 0;

 private:
  DeviceMemory memory_;
};

class CudaVerify final : public SurrogateBase {
 public:
  Status prepare(const Trace& trace, std::uint64_t seed) override {
    pieces_ = surrogate_pieces(trace);
    return open(trace, seed);
  }

  /// Everything is read before anything is written: outputs may be in place.
  Status run(const KernelCall& call, void* on) override {
    auto* const stream = static_cast<cudaStream_t>(on);
    const Op& op = (*trace_)[call.op];
    SUPERNEURONS_TRY(cudaMemsetAsync(sums(), 0, sizeof(SurrogateSums), stream));
    for (const SurrogatePiece& piece : pieces_[call.op.index]) {
      if (call.reads[piece.read] == nullptr) continue;
      const std::uint64_t salt =
          surrogate_salt(piece.read, static_cast<std::uint64_t>(piece.offset.count));
      SUPERNEURONS_TRY(launch_digest(call.reads[piece.read] + piece.offset.count,
                                     piece.length.count, salt,
                                     piece.once ? &sums()->once : &sums()->all, stream));
    }
    const std::uint64_t key = surrogate_key(seed_, call.op.index, op.random, call.training_step);
    for (std::size_t i = 0; i < op.writes.size(); ++i) {
      const TensorId tensor = op.writes[i].tensor;
      if (call.writes[i] == nullptr) continue;
      if (contains(op.choices[call.choice].omits, tensor)) continue;
      SUPERNEURONS_TRY(launch_output(call.writes[i], op.writes[i].length.count, key, tensor.index,
                                     contains(op.once, tensor), sums(), stream));
    }
    return Ok{};
  }

 private:
  std::vector<std::vector<SurrogatePiece>> pieces_;
};

/// Keeps the stream busy for the recorded time; samples show that the ranges are there.
class CudaTimed final : public SurrogateBase {
 public:
  Status prepare(const Trace& trace, std::uint64_t seed) override {
    if (Status opened = open(trace, seed); !opened) return opened;
    return cycles_per_ns_ > 0 ? Status(Ok{}) : calibrate();
  }

  /// At most one range of each: a second launch would take longer than short ops.
  Status run(const KernelCall& call, void* on) override {
    const Op& op = (*trace_)[call.op];
    SurrogateSamples samples;
    for (std::size_t i = 0; i < op.reads.size() && samples.read == nullptr; ++i) {
      samples.read = call.reads[i];
      samples.read_bytes = samples.read == nullptr ? 0 : op.reads[i].length.count;
    }
    for (std::size_t i = 0; i < op.writes.size() && samples.write == nullptr; ++i) {
      samples.write = call.writes[i];
      samples.write_bytes = samples.write == nullptr ? 0 : op.writes[i].length.count;
    }
    const auto ns = static_cast<double>(op.choices[call.choice].ns.count);
    SUPERNEURONS_TRY(
        launch_timed(samples, ns, cycles_per_ns_, &sums()->all, static_cast<cudaStream_t>(on)));
    return Ok{};
  }

 private:
  Status calibrate();
  Result<double> spin_ns(std::int64_t cycles, cudaStream_t stream);

  double cycles_per_ns_ = 0;
};

/// Device time of 16 spins of `cycles` each, by one.
Result<double> CudaTimed::spin_ns(std::int64_t cycles, cudaStream_t stream) {
  constexpr int kSpins = 16;
  auto start = make_event(true);
  if (!start) return start.error();
  auto end = make_event(true);
  if (!end) return end.error();
  // The first spin lets the host run ahead, so that the others queue without gaps of its own.
  SUPERNEURONS_TRY(launch_spin(1'000'000, stream));
  SUPERNEURONS_TRY(cudaEventRecord(start->get(), stream));
  for (int i = 0; i < kSpins; ++i) SUPERNEURONS_TRY(launch_spin(cycles, stream));
  SUPERNEURONS_TRY(cudaEventRecord(end->get(), stream));
  SUPERNEURONS_TRY(cudaStreamSynchronize(stream));
  float ms = 0;
  SUPERNEURONS_TRY(cudaEventElapsedTime(&ms, start->get(), end->get()));
  return static_cast<double>(ms) * 1e6 / kSpins;
}

/// The clock counts cycles at a rate that depends on the device and its load: two lengths of spin
/// tell it, whatever a launch costs besides.
Status CudaTimed::calibrate() {
  auto stream = make_stream();
  if (!stream) return stream.error();
  constexpr std::int64_t kShort = 20'000, kLong = 220'000;
  for (int round = 0; round < 2; ++round) {  // the first wakes the clocks up
    const auto brief = spin_ns(kShort, stream->get());
    if (!brief) return brief.error();
    const auto extended = spin_ns(kLong, stream->get());
    if (!extended) return extended.error();
    if (*extended > *brief)
      cycles_per_ns_ = static_cast<double>(kLong - kShort) / (*extended - *brief);
  }
  if (cycles_per_ns_ > 0) return Ok{};
  return Error{ErrorCode::device, "the rate of the device's clock could not be measured"};
}

}  // namespace

std::unique_ptr<Kernels> make_cuda_surrogate_kernels(SurrogateMode mode) {
  if (mode == SurrogateMode::verify) return std::make_unique<CudaVerify>();
  return std::make_unique<CudaTimed>();
}

}  // namespace superneurons
