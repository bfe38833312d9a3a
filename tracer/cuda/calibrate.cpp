#include "tracer/calibrate.h"

#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <cupti.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tracer/activity.h"
#include "tracer/cuda/calibrate_kernels.h"

namespace superneurons {
namespace {

/// Leaves the function with an Error; each measurement below returns a Status.
#define SUPERNEURONS_TRY_CUDA(call)                                            \
  if (const cudaError_t error_ = (call); error_ != cudaSuccess) return Error { \
      .code = ErrorCode::device,                                               \
      .message = fmt::format("{}: {}", #call, cudaGetErrorString(error_))      \
    }

using Clock = std::chrono::steady_clock;
Nanoseconds since(Clock::time_point begin) { return {(Clock::now() - begin).count()}; }

/// What all measurements share: two device buffers of kBuffer bytes and a pinned pool of kPlaces
/// such pieces. A curve is the mean over places in a pool as large as a replay's, so that slow
/// pages show.
struct Bench {
  static constexpr std::int64_t kBuffer = 512LL << 20;
  static constexpr std::int64_t kPlaces = 8;
  cudaStream_t compute{}, out{}, in{};
  cudaEvent_t begin{}, end{};
  std::byte *x{}, *y{};
  std::byte* pool{};
  std::byte *host_out{}, *host_in{};  // two pieces of the pool
  cublasHandle_t blas{};

  ~Bench() {
    cudaDeviceSynchronize();
    for (const cudaStream_t stream : {compute, out, in})
      if (stream) cudaStreamDestroy(stream);
    for (const cudaEvent_t event : {begin, end})
      if (event) cudaEventDestroy(event);
    cudaFree(x);
    cudaFree(y);
    cudaFreeHost(pool);
    if (blas) cublasDestroy(blas);
  }
};

Status set_up(Bench& bench, DeviceProfile& profile) {
  for (cudaStream_t* stream : {&bench.compute, &bench.out, &bench.in})
    SUPERNEURONS_TRY_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
  for (cudaEvent_t* event : {&bench.begin, &bench.end})
    SUPERNEURONS_TRY_CUDA(cudaEventCreate(event));
  SUPERNEURONS_TRY_CUDA(cudaMalloc(&bench.x, Bench::kBuffer));
  SUPERNEURONS_TRY_CUDA(cudaMalloc(&bench.y, Bench::kBuffer));
  SUPERNEURONS_TRY_CUDA(cudaMemset(bench.x, 0, Bench::kBuffer));
  SUPERNEURONS_TRY_CUDA(cudaMemset(bench.y, 0, Bench::kBuffer));
  const auto pinning = Clock::now();
  constexpr std::int64_t kPool = Bench::kBuffer * Bench::kPlaces;
  SUPERNEURONS_TRY_CUDA(cudaHostAlloc(&bench.pool, kPool, cudaHostAllocDefault));
  profile.pin_ns_per_byte = static_cast<double>(since(pinning).count) / static_cast<double>(kPool);
  bench.host_out = bench.pool;
  bench.host_in = bench.pool + kPool / 2;
  if (cublasCreate(&bench.blas) != CUBLAS_STATUS_SUCCESS)
    return Error{.code = ErrorCode::device, .message = "cublasCreate failed"};
  cublasSetStream(bench.blas, bench.compute);
  return Ok{};
}

/// Device time of what `issue` puts on `stream`, median of `repeats`.
template <class Issue>
Result<Nanoseconds> device_time(Bench& bench, cudaStream_t stream, int repeats,
                                const Issue& issue) {
  std::vector<Nanoseconds> times;
  for (int i = 0; i < repeats; ++i) {
    SUPERNEURONS_TRY_CUDA(cudaEventRecord(bench.begin, stream));
    issue();
    SUPERNEURONS_TRY_CUDA(cudaEventRecord(bench.end, stream));
    SUPERNEURONS_TRY_CUDA(cudaEventSynchronize(bench.end));
    float ms = 0;
    SUPERNEURONS_TRY_CUDA(cudaEventElapsedTime(&ms, bench.begin, bench.end));
    times.push_back({static_cast<std::int64_t>(static_cast<double>(ms) * 1e6)});
  }
  SUPERNEURONS_TRY_CUDA(cudaDeviceSynchronize());
  return median(std::move(times));
}

/// Time of one copy of `bytes` between the device and a place of the pool. Copies are queued back
/// to back, as a replay queues them, so that the event pair's own cost is shared.
Result<Nanoseconds> copy_time(Bench& bench, bool out, std::int64_t bytes, std::byte* host) {
  const cudaStream_t stream = out ? bench.out : bench.in;
  const auto size = static_cast<std::size_t>(bytes);
  const int queued = bytes <= (4 << 20) ? 16 : 2;
  const auto ns = device_time(bench, stream, 3, [&] {
    for (int i = 0; i < queued; ++i)
      if (out) cudaMemcpyAsync(host, bench.x, size, cudaMemcpyDeviceToHost, stream);
      else cudaMemcpyAsync(bench.y, host, size, cudaMemcpyHostToDevice, stream);
  });
  if (!ns) return ns.error();
  return Nanoseconds{ns->count / queued};
}

Result<TransferCurve> curve_of(Bench& bench, bool out) {
  TransferCurve curve;
  for (std::int64_t bytes = 4096; bytes <= Bench::kBuffer; bytes *= 2) {
    std::int64_t sum = 0;
    for (std::int64_t place = 0; place < Bench::kPlaces; ++place) {
      const auto ns = copy_time(bench, out, bytes, bench.pool + place * Bench::kBuffer);
      if (!ns) return ns.error();
      sum += ns->count;
    }
    curve.points.push_back({{bytes}, {std::max<std::int64_t>(sum / Bench::kPlaces, 1)}});
  }
  const auto& a = curve.points[curve.points.size() - 2];
  const auto& b = curve.points.back();
  curve.bytes_per_ns = static_cast<double>((b.bytes - a.bytes).count) /
                       static_cast<double>(std::max<std::int64_t>((b.ns - a.ns).count, 1));
  return curve;
}

void start_copies(Bench& bench, bool out, bool in, int times) {
  for (int i = 0; i < times; ++i) {
    if (out)
      cudaMemcpyAsync(bench.host_out, bench.x, Bench::kBuffer, cudaMemcpyDeviceToHost, bench.out);
    if (in)
      cudaMemcpyAsync(bench.y, bench.host_in, Bench::kBuffer, cudaMemcpyHostToDevice, bench.in);
  }
}

Status measure_both_ways(Bench& bench, DeviceProfile& profile) {
  std::vector<Nanoseconds> times;
  constexpr int kCopies = 4;
  for (int i = 0; i < 5; ++i) {
    SUPERNEURONS_TRY_CUDA(cudaDeviceSynchronize());
    const auto begin = Clock::now();
    start_copies(bench, true, true, kCopies);
    SUPERNEURONS_TRY_CUDA(cudaDeviceSynchronize());
    times.push_back(since(begin));
  }
  profile.both_bytes_per_ns = 2.0 * kCopies * static_cast<double>(Bench::kBuffer) /
                              static_cast<double>(median(times).count);
  return Ok{};
}

/// Host time per call of `issue`, with the stream kept busy so that the queue never drains.
template <class Issue>
Result<Nanoseconds> issue_time(Bench& bench, const Issue& issue) {
  constexpr int kCalls = 300;
  std::vector<Nanoseconds> times;
  for (int round = 0; round < 7; ++round) {
    launch_spin(4'000'000, nullptr, bench.compute);
    const auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) issue();
    times.push_back({since(begin).count / kCalls});
    SUPERNEURONS_TRY_CUDA(cudaDeviceSynchronize());
  }
  return median(std::move(times));
}

Status measure_issue(Bench& bench, DeviceProfile& profile) {
  auto launch = issue_time(bench, [&] { launch_empty(bench.compute); });
  if (!launch) return launch.error();
  profile.launch_ns = *launch;
  auto copy = issue_time(bench, [&] {
    cudaMemcpyAsync(bench.host_out, bench.x, 4096, cudaMemcpyDeviceToHost, bench.compute);
  });
  if (!copy) return copy.error();
  profile.copy_issue_ns = *copy;
  cudaEvent_t event{};
  SUPERNEURONS_TRY_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  auto pair = issue_time(bench, [&] {
    cudaEventRecord(event, bench.compute);
    cudaStreamWaitEvent(bench.out, event, 0);
  });
  cudaEventDestroy(event);
  if (!pair) return pair.error();
  profile.event_ns = {pair->count / 2};
  return Ok{};
}

/// Idle time between queued kernels of one stream: the time of a chain of spinning kernels beyond
/// what they saw themselves run. With copies in between, what a chain costs beyond kernels and
/// copies is two waits: of the copy for the kernel and of the next kernel for the copy.
Status measure_gaps(Bench& bench, DeviceProfile& profile) {
  constexpr int kKernels = 200;
  constexpr long long kCycles = 20'000;
  constexpr std::int64_t kCopy = 1 << 20;
  auto* seen = reinterpret_cast<unsigned long long*>(bench.host_in);
  cudaEvent_t event{};
  SUPERNEURONS_TRY_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const auto chain = [&](bool copies) -> Result<Nanoseconds> {
    auto total = device_time(bench, bench.compute, 9, [&] {
      for (int i = 0; i < kKernels; ++i) {
        launch_spin(kCycles, seen + i, bench.compute);
        if (!copies) continue;
        cudaEventRecord(event, bench.compute);
        cudaStreamWaitEvent(bench.out, event, 0);
        cudaMemcpyAsync(bench.host_out, bench.x, kCopy, cudaMemcpyDeviceToHost, bench.out);
        cudaEventRecord(event, bench.out);
        cudaStreamWaitEvent(bench.compute, event, 0);
      }
    });
    if (!total) return total.error();
    std::int64_t busy = 0;
    for (int i = 0; i < kKernels; ++i) busy += static_cast<std::int64_t>(seen[i]);
    return Nanoseconds{std::max<std::int64_t>((total->count - busy) / kKernels, 0)};
  };
  auto gap = chain(false);
  auto round_trip = chain(true);
  cudaEventDestroy(event);
  if (!gap) return gap.error();
  if (!round_trip) return round_trip.error();
  const auto copy = copy_time(bench, true, kCopy, bench.host_out);
  if (!copy) return copy.error();
  profile.gap_ns = *gap;
  profile.wait_ns = {std::max<std::int64_t>((round_trip->count - copy->count) / 2, 0)};
  return Ok{};
}

Status measure_allocation(DeviceProfile& profile) {
  std::vector<Nanoseconds> times;
  for (int i = 0; i < 15; ++i) {
    void* block = nullptr;
    const auto begin = Clock::now();
    SUPERNEURONS_TRY_CUDA(cudaMalloc(&block, 64 << 20));
    SUPERNEURONS_TRY_CUDA(cudaFree(block));
    times.push_back(since(begin));
  }
  profile.alloc_ns = median(times);
  return Ok{};
}

constexpr int kMatrix = 4096;

void multiply(Bench& bench, bool tf32) {
  cublasSetMathMode(bench.blas, tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH);
  const float one = 1, zero = 0;
  auto* a = reinterpret_cast<float*>(bench.x);
  auto* b = a + kMatrix * kMatrix;
  auto* c = b + kMatrix * kMatrix;
  cublasSgemm(bench.blas, CUBLAS_OP_N, CUBLAS_OP_N, kMatrix, kMatrix, kMatrix, &one, a, kMatrix, b,
              kMatrix, &zero, c, kMatrix);
}

Status measure_rates(Bench& bench, DeviceProfile& profile) {
  const double flops = 2.0 * kMatrix * kMatrix * static_cast<double>(kMatrix);
  for (const bool tf32 : {false, true}) {
    multiply(bench, tf32);
    auto ns = device_time(bench, bench.compute, 9, [&] { multiply(bench, tf32); });
    if (!ns) return ns.error();
    (tf32 ? profile.tf32_flops_per_ns : profile.flops_per_ns) =
        flops / static_cast<double>(ns->count);
  }
  auto ns = device_time(bench, bench.compute, 9, [&] {
    cudaMemcpyAsync(bench.y, bench.x, Bench::kBuffer, cudaMemcpyDeviceToDevice, bench.compute);
  });
  if (!ns) return ns.error();
  profile.memory_bytes_per_ns = 2.0 * Bench::kBuffer / static_cast<double>(ns->count);
  return Ok{};
}

/// Slowdown of `work` while copies run: its time with copies under way over its time alone, minus
/// one.
template <class Work>
Result<Interference> interference(Bench& bench, const Work& work) {
  Interference result;
  auto alone = device_time(bench, bench.compute, 9, work);
  if (!alone) return alone.error();
  const auto slowed = [&](bool out, bool in) -> Result<double> {
    std::vector<double> factors;
    for (int i = 0; i < 7; ++i) {
      start_copies(bench, out, in, 2);  // about 20 ms: longer than the work
      auto ns = device_time(bench, bench.compute, 1, work);
      if (!ns) return ns.error();
      factors.push_back(static_cast<double>(ns->count) / static_cast<double>(alone->count) - 1);
    }
    std::sort(factors.begin(), factors.end());
    return std::max(factors[factors.size() / 2], 0.0);
  };
  const auto out = slowed(true, false), in = slowed(false, true), both = slowed(true, true);
  if (!out) return out.error();
  if (!in) return in.error();
  if (!both) return both.error();
  return Interference{*out, *in, *both};
}

Status measure_interference(Bench& bench, DeviceProfile& profile) {
  auto memory = interference(bench, [&] {
    for (int i = 0; i < 8; ++i) launch_stream(bench.x, bench.y, {Bench::kBuffer}, bench.compute);
  });
  if (!memory) return memory.error();
  profile.memory_bound = *memory;
  auto arithmetic = interference(bench, [&] {
    for (int i = 0; i < 2; ++i) multiply(bench, false);
  });
  if (!arithmetic) return arithmetic.error();
  profile.compute_bound = *arithmetic;
  return Ok{};
}

}  // namespace

std::string cuda_versions() {
  int device = 0, driver = 0, runtime = 0, blas_patch = 0, blas_minor = 0, blas_major = 0;
  cudaDeviceProp properties{};
  std::uint32_t cupti = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, device) != cudaSuccess)
    return "no GPU";
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  cublasGetProperty(MAJOR_VERSION, &blas_major);
  cublasGetProperty(MINOR_VERSION, &blas_minor);
  cublasGetProperty(PATCH_LEVEL, &blas_patch);
  cuptiGetVersion(&cupti);
  const std::size_t dnn = cudnnGetVersion();
  return fmt::format(
      "{}, driver API {}.{}, runtime {}.{}, cuDNN {}.{}.{}, cuBLAS {}.{}.{}, CUPTI API {}",
      properties.name, driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10,
      dnn / 10000, dnn % 10000 / 100, dnn % 100, blas_major, blas_minor, blas_patch, cupti);
}

Result<DeviceProfile> calibrate_cuda(const CalibrateOptions& options) {
  DeviceProfile profile;
  cudaDeviceProp properties{};
  std::size_t free_bytes = 0, total_bytes = 0;
  SUPERNEURONS_TRY_CUDA(cudaGetDeviceProperties(&properties, 0));
  SUPERNEURONS_TRY_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  profile.name = options.name.empty() ? "cuda" : options.name;
  profile.device = properties.name;
  profile.measured = true;
  profile.origin = fmt::format("{}; {}", options.origin, cuda_versions());
  profile.device_memory = {static_cast<std::int64_t>(total_bytes)};
  profile.host_memory = {static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) *
                         sysconf(_SC_PAGE_SIZE) / 2};

  Bench bench;
  if (Status s = begin_stage(options, "buffers and pinning"); !s) return s.error();
  if (Status s = set_up(bench, profile); !s) return s.error();
  if (Status s = begin_stage(options, "rates"); !s) return s.error();
  if (Status s = measure_rates(bench, profile); !s) return s.error();
  if (Status s = begin_stage(options, "transfer curves"); !s) return s.error();
  auto offload = curve_of(bench, true);
  if (!offload) return offload.error();
  auto prefetch = curve_of(bench, false);
  if (!prefetch) return prefetch.error();
  profile.offload = *offload;
  profile.prefetch = *prefetch;
  if (Status s = measure_both_ways(bench, profile); !s) return s.error();
  if (Status s = begin_stage(options, "issue costs and gaps"); !s) return s.error();
  if (Status s = measure_issue(bench, profile); !s) return s.error();
  if (Status s = measure_gaps(bench, profile); !s) return s.error();
  if (Status s = measure_allocation(profile); !s) return s.error();
  if (Status s = begin_stage(options, "kernels during copies"); !s) return s.error();
  if (Status s = measure_interference(bench, profile); !s) return s.error();
  return profile;
}

}  // namespace superneurons
