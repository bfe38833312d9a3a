// A CUDA program to trace: a loop of training steps of a few kernels, with cudaMalloc and cudaFree
// in each, as programs do that know nothing of superneurons.
//
//     superneurons trace -o t.jsonl -- superneurons_traced_program --steps 20 --nvtx
//
// --nvtx marks steps, phases and layers; --async allocates by cudaMallocAsync, --mapped by
// cuMemCreate and cuMemMap; --fork has a child that does nothing on the GPU, --exec one that runs
// this program again; --kill-at N ends it by SIGKILL in step N; --exit N is its exit code.
#include <cuda.h>
#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr int kLayers = 6;
constexpr std::size_t kFloats = 4 << 20;

__global__ void forward_layer(const float* x, const float* w, float* y, std::size_t n) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = x[i] * w[i % 1024] + 0.5f * x[(i + 7) % n];
}
__global__ void activate(float* y, std::size_t n) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    y[i] = y[i] > 0 ? y[i] : 0;
}
__global__ void backward_layer(const float* dy, const float* w, float* dx, std::size_t n) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    dx[i] = dy[i] * w[i % 1024];
}
__global__ void update(float* w, const float* dy) { w[threadIdx.x] -= 1e-4f * dy[threadIdx.x]; }

struct Options {
  int steps = 20, kill_at = -1, exit_code = 0;
  bool nvtx = false, async = false, mapped = false, forks = false, execs = false;
};

struct Scope {
  bool on;
  Scope(bool wanted, const char* name) : on(wanted) {
    if (on) nvtxRangePushA(name);
  }
  ~Scope() {
    if (on) nvtxRangePop();
  }
};

void check(cudaError_t error) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
  std::exit(99);
}

std::size_t mapped_bytes() {
  return (kFloats * sizeof(float) + (2 << 20) - 1) / (2 << 20) * (2 << 20);
}

/// As PyTorch's expandable segments do it.
float* map_memory(CUmemGenericAllocationHandle* handle) {
  CUmemAllocationProp property{};
  property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  property.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccessDesc access{property.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUdeviceptr address = 0;
  const std::size_t bytes = mapped_bytes();
  if (cuMemAddressReserve(&address, bytes, 0, 0, 0) || cuMemCreate(handle, bytes, &property, 0) ||
      cuMemMap(address, bytes, 0, *handle, 0) || cuMemSetAccess(address, bytes, &access, 1))
    std::exit(98);
  return reinterpret_cast<float*>(address);
}

float* take(const Options& options, CUmemGenericAllocationHandle* handle) {
  float* memory = nullptr;
  if (options.mapped) return map_memory(handle);
  if (options.async) check(cudaMallocAsync(&memory, kFloats * sizeof(float), nullptr));
  else check(cudaMalloc(&memory, kFloats * sizeof(float)));
  return memory;
}

void give_back(const Options& options, float* memory, CUmemGenericAllocationHandle handle) {
  if (options.mapped) {
    cudaDeviceSynchronize();
    const auto address = reinterpret_cast<CUdeviceptr>(memory);
    cuMemUnmap(address, mapped_bytes());
    cuMemRelease(handle);
    cuMemAddressFree(address, mapped_bytes());
  } else if (options.async) {
    check(cudaFreeAsync(memory, nullptr));
  } else {
    check(cudaFree(memory));
  }
}

float step(const Options& options, float* const* weights, const float* batch) {
  const Scope whole(options.nvtx, "step");
  float* y[kLayers + 1];
  CUmemGenericAllocationHandle handles[kLayers + 1];
  y[0] = take(options, &handles[0]);
  check(cudaMemcpyAsync(y[0], batch, kFloats * sizeof(float), cudaMemcpyHostToDevice));
  {
    const Scope phase(options.nvtx, "forward");
    for (int i = 0; i < kLayers; ++i) {
      const Scope layer(options.nvtx, i % 2 ? "odd layer" : "even layer");
      y[i + 1] = take(options, &handles[i + 1]);
      forward_layer<<<512, 256>>>(y[i], weights[i], y[i + 1], kFloats);
      activate<<<512, 256>>>(y[i + 1], kFloats);
    }
  }
  float loss = 0;
  check(cudaMemcpy(&loss, y[kLayers], sizeof loss, cudaMemcpyDeviceToHost));
  {
    const Scope phase(options.nvtx, "backward");
    for (int i = kLayers; i-- > 0;) {
      backward_layer<<<512, 256>>>(y[i + 1], weights[i], y[i], kFloats);
      give_back(options, y[i + 1], handles[i + 1]);
    }
  }
  const Scope phase(options.nvtx, "update");
  for (int i = 0; i < kLayers; ++i) update<<<1, 1024>>>(weights[i], y[0]);
  give_back(options, y[0], handles[0]);
  return loss;
}

Options read(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(words[i], name) == 0; };
    const auto number = [&] { return i + 1 < count ? std::atoi(words[++i]) : 0; };
    if (is("--steps")) options.steps = number();
    else if (is("--kill-at")) options.kill_at = number();
    else if (is("--exit")) options.exit_code = number();
    else if (is("--nvtx")) options.nvtx = true;
    else if (is("--async")) options.async = true;
    else if (is("--mapped")) options.mapped = true;
    else if (is("--fork")) options.forks = true;
    else if (is("--exec")) options.execs = true;
  }
  return options;
}

}  // namespace

int main(int count, char** words) {
  const Options options = read(count, words);
  float* weights[kLayers];
  for (float*& w : weights) {
    check(cudaMalloc(&w, 1024 * sizeof(float)));
    check(cudaMemset(w, 0, 1024 * sizeof(float)));
  }
  float* batch = nullptr;
  check(cudaMallocHost(&batch, kFloats * sizeof(float)));
  for (std::size_t i = 0; i < kFloats; ++i) batch[i] = static_cast<float>(i % 17);
  pid_t child = 0;
  if (options.forks || options.execs) {
    child = fork();
    if (child == 0 && options.execs) {
      execl("/proc/self/exe", words[0], "--steps", "5", static_cast<char*>(nullptr));
      _exit(97);
    }
    if (child == 0) std::exit(0);
  }
  float loss = 0;
  for (int i = 0; i < options.steps; ++i) {
    if (i == options.kill_at) {
      sleep(2);  // the tracer hands on what is done every second
      raise(SIGKILL);
    }
    loss += step(options, weights, batch);
  }
  check(cudaDeviceSynchronize());
  if (child > 0) waitpid(child, nullptr, 0);
  std::printf("loss %.6f\n", loss);
  return options.exit_code;
}
