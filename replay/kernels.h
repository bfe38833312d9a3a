// Kernels: what a replay backend runs for an op. Native for the built-in networks (cuDNN, cuBLAS
// and a few of our own on CUDA; Eigen on the host), surrogate for any trace.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

struct KernelCall {
  OpId op;
  std::uint32_t choice = 0;
  bool rerun = false;
  int training_step = 0;
  std::span<std::byte* const> reads;   // address of each access of op.reads; null if skipped
  std::span<std::byte* const> writes;  // of op.writes; a discarded output points to scratch
  std::byte* workspace = nullptr;
  Bytes workspace_bytes{};
  const std::atomic<bool>* stop = nullptr;  // once set, a slow kernel may end with its work undone
  bool stopped() const { return stop != nullptr && *stop; }
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  /// Refuses ops it cannot run (unknown kind, missing attribute, unknown algorithm), naming the
  /// first.
  virtual Status prepare(const Trace& trace, std::uint64_t seed) = 0;
  /// `stream` is a cudaStream_t for CUDA kernels, null on the host.
  virtual Status run(const KernelCall& call, void* stream) = 0;
  /// Device memory held by libraries outside the arena (handles, modules), for the report.
  virtual Bytes outside_bytes() const { return {}; }
};

std::unique_ptr<Kernels> make_host_native_kernels();

/// Surrogates: `verify` reads and writes every byte of the accessed ranges with a deterministic mix
/// of contents and op identity, so that equal checksums prove that no value was lost or stale;
/// `timed` samples the ranges and fills the recorded time.
enum class SurrogateMode : std::uint8_t { verify, timed };
std::unique_ptr<Kernels> make_host_surrogate_kernels(SurrogateMode mode);

#ifdef SUPERNEURONS_CUDA
std::unique_ptr<Kernels> make_cuda_native_kernels();
std::unique_ptr<Kernels> make_cuda_surrogate_kernels(SurrogateMode mode);
#endif

}  // namespace superneurons
