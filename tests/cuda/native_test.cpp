// Native CUDA kernels against those of the host, op by op on the same operands.
#include <gtest/gtest.h>

#ifdef SUPERNEURONS_CUDA
#include <algorithm>
#include <cmath>
#include <cstring>

#include "replay/cuda/channels.h"
#include "replay/cuda/check.h"
#include "replay/cuda/choices.h"
#include "replay/cuda/engine.h"
#include "replay/host_memory.h"
#include "replay/kernels.h"
#include "tests/cuda/cuda_network.h"
#include "tests/cuda/gpu.h"
#include "tests/small_networks.h"

namespace superneurons {
namespace {

constexpr std::uint64_t kSeed = 7;

using Raw = std::vector<std::byte>;

/// All tensors of a trace, on the host and on the device.
class Twins {
 public:
  explicit Twins(const Trace& trace) {
    for (std::uint32_t i = 0; i < trace.tensors.size(); ++i) {
      const Bytes bytes = trace.tensors[i].bytes;
      host_.emplace_back(static_cast<std::size_t>(bytes.count));
      fill(host_.back().data(), bytes, *first_content(trace, {i}, kSeed));
      device_.push_back(*make_device_memory(static_cast<std::size_t>(bytes.count)));
    }
  }

  std::byte* host(TensorId id) { return host_[id.index].data(); }
  const std::byte* host(TensorId id) const { return host_[id.index].data(); }
  std::byte* device(TensorId id) { return device_[id.index].get(); }
  std::size_t size(TensorId id) const { return host_[id.index].size(); }
  void upload(TensorId id) {
    ASSERT_EQ(cudaMemcpy(device(id), host(id), size(id), cudaMemcpyHostToDevice), cudaSuccess);
  }
  /// NaN on the device: what is not written shows.
  void poison(TensorId id) { ASSERT_EQ(cudaMemset(device(id), 0xFF, size(id)), cudaSuccess); }
  Raw download(TensorId id) {
    Raw bytes(size(id));
    EXPECT_EQ(cudaMemcpy(bytes.data(), device(id), size(id), cudaMemcpyDeviceToHost), cudaSuccess);
    return bytes;
  }

 private:
  std::vector<Raw> host_;
  std::vector<DeviceMemory> device_;
};

/// Largest difference over the largest value of the host's; infinite if one is not a number.
double distance(const Raw& cuda, const std::byte* host, double scale = 1e-30) {
  double most = scale, difference = 0;
  for (std::size_t at = 0; at + 4 <= cuda.size(); at += 4) {
    float a = 0, b = 0;
    std::memcpy(&a, cuda.data() + at, 4);
    std::memcpy(&b, host + at, 4);
    if (!std::isfinite(a) || !std::isfinite(b)) return INFINITY;
    most = std::max(most, std::abs(static_cast<double>(b)));
    difference = std::max(difference, std::abs(static_cast<double>(a) - b));
  }
  return difference / most;
}

/// A call whose spans point into itself.
struct Call {
  template <class Address>
  Call(const Op& op, OpId id, std::uint32_t choice, std::byte* workspace, const Address& address) {
    for (const Access& access : op.reads) reads.push_back(address(access.tensor));
    for (const Access& access : op.writes) writes.push_back(address(access.tensor));
    call.op = id;
    call.choice = choice;
    call.training_step = 3;
    call.reads = reads;
    call.writes = writes;
    call.workspace_bytes = op.choices[choice].workspace;
    call.workspace = call.workspace_bytes.count > 0 ? workspace : nullptr;
  }
  Call(const Call&) = delete;

  std::vector<std::byte*> reads, writes;
  KernelCall call;
};

bool reads(const Op& op, TensorId tensor) {
  return std::any_of(op.reads.begin(), op.reads.end(),
                     [&](const Access& access) { return access.tensor == tensor; });
}

/// The host has algorithms of its own: it runs every op its one plain way.
Trace without_choices(Trace trace) {
  for (Op& op : trace.ops) {
    op.choices = {Choice{}};
    op.recorded = 0;
  }
  return trace;
}

class Comparison {
 public:
  explicit Comparison(const Trace& trace)
      : trace_(trace), plain_(without_choices(trace)), twins_(trace) {}

  /// Runs every op with every choice on both; the host's results go on.
  void run(double tolerance) {
    const Status host_ready = host_->prepare(plain_, kSeed);
    const Status cuda_ready = cuda_->prepare(trace_, kSeed);
    ASSERT_TRUE(host_ready) << host_ready.error().message;
    ASSERT_TRUE(cuda_ready) << cuda_ready.error().message;
    Bytes largest{};
    for (const Op& op : trace_.ops)
      for (const Choice& choice : op.choices) largest = std::max(largest, choice.workspace);
    workspace_ = *make_device_memory(static_cast<std::size_t>(largest.count));
    for (std::uint32_t i = 0; i < trace_.ops.size(); ++i) {
      const Op& op = trace_.ops[i];
      std::vector<std::vector<Raw>> results;
      for (std::uint32_t choice = 0; choice < op.choices.size(); ++choice)
        results.push_back(on_cuda({i}, choice));
      const Call call(plain_.ops[i], {i}, 0, nullptr, [&](TensorId id) { return twins_.host(id); });
      const Status ran = host_->run(call.call, nullptr);
      ASSERT_TRUE(ran) << op.name << ": " << ran.error().message;
      for (std::size_t choice = 0; choice < results.size(); ++choice)
        agree(op, op.choices[choice].algorithm, results[choice], tolerance);
    }
  }

 private:
  std::vector<Raw> on_cuda(OpId id, std::uint32_t choice) {
    const Op& op = trace_[id];
    for (const Access& access : op.writes) twins_.poison(access.tensor);
    for (const Access& access : op.reads) twins_.upload(access.tensor);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    const Call call(op, id, choice, workspace_.get(),
                    [&](TensorId tensor) { return twins_.device(tensor); });
    const Status ran = cuda_->run(call.call, stream_.get());
    EXPECT_TRUE(ran) << op.name << " " << op.choices[choice].algorithm << ": "
                     << (ran ? "" : ran.error().message);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess) << op.name;
    std::vector<Raw> written;
    for (const Access& access : op.writes) written.push_back(twins_.download(access.tensor));
    return written;
  }

  void agree(const Op& op, const std::string& algorithm, const std::vector<Raw>& results,
             double tolerance) {
    // Where every reader of a channel normalises it, its gamma changes nothing: the gradient is a
    // sum that cancels, and its rounding is that of the sums beside it.
    double scale = 1e-30;
    if (op.kind == "BatchNormBackward") scale = largest(op.writes[2].tensor);
    for (std::size_t w = 0; w < op.writes.size(); ++w) {
      const TensorId id = op.writes[w].tensor;
      const std::string where =
          op.name + " (" + op.kind + ") " + trace_[id].name + " '" + algorithm + "'";
      if (trace_[id].dtype == "f32") {
        EXPECT_LE(distance(results[w], twins_.host(id), scale), tolerance) << where;
      } else {
        EXPECT_EQ(std::memcmp(results[w].data(), twins_.host(id), twins_.size(id)), 0) << where;
      }
    }
  }

  double largest(TensorId id) const {
    double most = 1e-30;
    for (std::size_t at = 0; at + 4 <= twins_.size(id); at += 4) {
      float value = 0;
      std::memcpy(&value, twins_.host(id) + at, 4);
      most = std::max(most, std::abs(static_cast<double>(value)));
    }
    return most;
  }

  const Trace& trace_;
  const Trace plain_;
  Twins twins_;
  StreamOwner stream_ = *make_stream();
  DeviceMemory workspace_;
  std::unique_ptr<Kernels> host_ = make_host_native_kernels();
  std::unique_ptr<Kernels> cuda_ = make_cuda_native_kernels();
};

class CudaNative : public CudaTest {};

TEST_F(CudaNative, every_op_of_native_lowering_agrees_with_the_host) {
  auto trace = lower(every_layer(), {.batch = 5});
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_TRUE(enumerate_choices(*trace, 64_MiB, false));
  Comparison(*trace).run(1e-4);
}

TEST_F(CudaNative, every_op_of_paper_lowering_agrees_with_the_host) {
  auto trace = lower(every_layer(), {.batch = 4, .lowering = Lowering::paper});
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_TRUE(enumerate_choices(*trace, 64_MiB, false));
  Comparison(*trace).run(1e-4);
}

TEST_F(CudaNative, small_cnn_agrees_with_the_host) {
  const auto net = find_network("small_cnn");
  ASSERT_TRUE(net);
  const auto trace = lower(*net, {.batch = 8});
  ASSERT_TRUE(trace);
  Comparison(*trace).run(1e-4);
}

/// Rectangular filters, padded average pooling of stride 1, concatenations of up to six; and
/// concatenations of concatenations.
TEST_F(CudaNative, blocks_of_inception_and_densenet_agree_with_the_host) {
  for (const Network& net : {small_inception(8), small_densenet()})
    for (const Lowering lowering : {Lowering::native, Lowering::paper}) {
      auto trace = lower(net, {.batch = 4, .lowering = lowering});
      ASSERT_TRUE(trace) << trace.error().message;
      const Status enumerated = enumerate_choices(*trace, 64_MiB, false);
      ASSERT_TRUE(enumerated) << enumerated.error().message;
      Comparison(*trace).run(1e-4);
    }
}

/// Wide and high filters with padding on one side only, of odd images, with and without stride.
Network rectangles() {
  Network net = image_network("rectangles", {6, 23, 18}, 10);
  LayerId x = convolution(net, net.data(), {.channels = 16, .kernel = {1, 7}, .pad = {0, 3}});
  x = convolution(net, relu(net, x), {.channels = 24, .kernel = {7, 1}, .pad = {3, 0}});
  x = average_pool(net, relu(net, x), {.kernel = 3, .stride = 1, .pad = 1});
  const LayerId left =
      convolution(net, x, {.channels = 16, .kernel = {1, 3}, .pad = {0, 1}, .bias = false});
  const LayerId right =
      convolution(net, x, {.channels = 8, .kernel = {3, 1}, .pad = {1, 0}, .bias = false});
  x = concat(net, {left, right, x, left});
  x = convolution(net, relu(net, x),
                  {.channels = 12, .kernel = {3, 5}, .stride = 2, .pad = {2, 1}});
  x = convolution(net, relu(net, x), {.channels = 12, .kernel = 1, .pad = {0, 1}});
  softmax_cross_entropy(net, linear(net, relu(net, x), {.features = 10}));
  return net;
}

TEST_F(CudaNative, every_algorithm_for_rectangular_filters_agrees_with_the_host) {
  for (const Lowering lowering : {Lowering::native, Lowering::paper}) {
    auto trace = lower(rectangles(), {.batch = 4, .lowering = lowering});
    ASSERT_TRUE(trace) << trace.error().message;
    const Status enumerated = enumerate_choices(*trace, 256_MiB, true);
    ASSERT_TRUE(enumerated) << enumerated.error().message;
    for (const Op& op : trace->ops) {
      if (!op.attributes.contains("pad_h")) continue;
      for (const Choice& choice : op.choices)
        EXPECT_FALSE(choice.algorithm.starts_with("CUBLAS")) << op.name;
    }
    Comparison(*trace).run(2e-3);
  }
}

TEST_F(CudaNative, every_algorithm_agrees_with_the_host) {
  auto trace = lower(every_layer(), {.batch = 4});
  ASSERT_TRUE(trace);
  const Status enumerated = enumerate_choices(*trace, 1024_MiB, true);
  ASSERT_TRUE(enumerated) << enumerated.error().message;
  Comparison(*trace).run(2e-3);  // Winograd and FFT round more
}

TEST_F(CudaNative, every_pair_of_fused_algorithms_agrees_with_the_host) {
  auto trace = lower(every_layer(), {.batch = 2, .lowering = Lowering::paper});
  ASSERT_TRUE(trace);
  const Status enumerated = enumerate_choices(*trace, 256_MiB, true);
  ASSERT_TRUE(enumerated) << enumerated.error().message;
  Comparison(*trace).run(2e-3);
}

TEST_F(CudaNative, every_algorithm_agrees_with_the_host_in_tf32) {
  auto trace = lower(every_layer(), {.batch = 4});
  ASSERT_TRUE(trace);
  trace->math = "tf32";
  const Status enumerated = enumerate_choices(*trace, 256_MiB, true);
  ASSERT_TRUE(enumerated) << enumerated.error().message;
  Comparison(*trace).run(1e-2);  // TF32 keeps 10 bits of each factor
}

/// Values on the device.
class OnDevice {
 public:
  explicit OnDevice(const std::vector<float>& values)
      : count_(values.size()), memory_(*make_device_memory(values.size() * 4)) {
    EXPECT_EQ(cudaMemcpy(at(), values.data(), count_ * 4, cudaMemcpyHostToDevice), cudaSuccess);
  }
  float* at() { return reinterpret_cast<float*>(memory_.get()); }
  std::vector<float> values() {
    std::vector<float> result(count_);
    EXPECT_EQ(cudaMemcpy(result.data(), at(), count_ * 4, cudaMemcpyDeviceToHost), cudaSuccess);
    return result;
  }

 private:
  std::size_t count_;
  DeviceMemory memory_;
};

TEST_F(CudaNative, batch_norm_keeps_a_small_variance_far_from_zero) {
  constexpr int n = 9, c = 3, hw = 50;  // planes of no multiple of 16 bytes
  std::vector<float> values;
  for (int i = 0; i < n * c * hw; ++i) values.push_back(i % 2 == 0 ? 1000.25F : 999.75F);
  OnDevice x(values), y(values), ones({1, 1, 1}), zeros({0, 0, 0}), mean({0, 0, 0});
  OnDevice invstd({0, 0, 0}), running_mean({0, 0, 0}), running_var({1, 1, 1});
  const BatchNormShape shape{.n = n, .c = c, .hw = hw, .epsilon = 1e-5F, .momentum = 0.5F};
  ASSERT_EQ(launch_batch_norm(x.at(), ones.at(), zeros.at(), y.at(), mean.at(), invstd.at(),
                              running_mean.at(), running_var.at(), shape, nullptr),
            cudaSuccess);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (float each : mean.values()) EXPECT_NEAR(each, 1000, 1e-3);
  for (float each : invstd.values()) EXPECT_NEAR(each, 4, 1e-2);
  for (float each : running_mean.values()) EXPECT_NEAR(each, 500, 1e-3);
  for (float each : running_var.values()) EXPECT_NEAR(each, 0.5 * (1 + 0.0625), 1e-3);
  for (float each : y.values()) EXPECT_NEAR(std::abs(each), 1, 1e-2);
  EXPECT_NE(launch_batch_norm(x.at(), ones.at(), zeros.at(), x.at(), mean.at(), invstd.at(),
                              nullptr, nullptr, shape, nullptr),
            cudaSuccess);  // in place
}

TEST(EngineNames, are_read_as_they_are_written) {
  for (const EngineConfig& config :
       {EngineConfig{0, {}}, EngineConfig{23, {{2, 1}}}, EngineConfig{4007, {{2, 31}, {14, -1}}}}) {
    const auto read = parse_engine(engine_name(config));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->engine, config.engine);
    EXPECT_EQ(read->knobs, config.knobs);
  }
  for (const char* bad :
       {"engine:", "engine:x", "engine:-1", "engine:3:", "engine:3:9", "engine:3:1=2,",
        "engine:3:1=2;4=5", "engine:3:99=1", "ALGO_1", "engine:99999999999999999999"})
    EXPECT_FALSE(parse_engine(bad)) << bad;
}

std::string refusal(const Trace& trace) {
  const Status ready = make_cuda_native_kernels()->prepare(trace, 1);
  return ready ? "" : ready.error().message;
}

TEST_F(CudaNative, refuses_by_name_what_it_cannot_run) {
  const auto trace = lower(every_layer(), {.batch = 2});
  ASSERT_TRUE(trace);
  EXPECT_EQ(refusal(*trace), "");
  Trace bad = *trace;
  bad.ops[0].kind = "Mystery";
  EXPECT_NE(refusal(bad).find(bad.ops[0].name + " (Mystery)"), std::string::npos);
  bad = *trace;
  bad.ops[0].attributes.erase("stride");
  EXPECT_NE(refusal(bad).find("'stride' is missing"), std::string::npos);
  bad = *trace;
  bad.ops[0].attributes["oh"] += 1;  // would write past the end of y
  EXPECT_NE(refusal(bad).find("follow from the attributes"), std::string::npos);
  bad = *trace;
  bad.ops[0].choices[0].algorithm = "GUESS";
  EXPECT_NE(refusal(bad).find("'GUESS'"), std::string::npos);
  bad.ops[0].choices[0].algorithm = "engine:GUESS";
  EXPECT_NE(refusal(bad).find("names no engine"), std::string::npos);
  bad.ops[0].choices[0].algorithm = "CUBLAS";  // the first convolution is 3x3
  EXPECT_NE(refusal(bad).find("1x1"), std::string::npos);
}

TEST_F(CudaNative, choices_say_what_is_deterministic_and_stay_in_the_limit) {
  auto trace = lower(every_layer(), {.batch = 4});
  ASSERT_TRUE(trace);
  ASSERT_TRUE(enumerate_choices(*trace, 64_MiB, true));
  std::size_t most = 0;
  for (const Op& op : trace->ops) {
    most = std::max(most, op.choices.size());
    EXPECT_TRUE(op.choices[op.recorded].deterministic) << op.name;
    for (const Choice& choice : op.choices) {
      EXPECT_LE(choice.workspace, 64_MiB);
      EXPECT_NE(choice.math, "tf32");
      const bool any_order = choice.algorithm == "ALGO_0" || choice.algorithm == "ALGO_3";
      if (!choice.algorithm.starts_with("engine:")) {
        EXPECT_EQ(choice.deterministic, !any_order) << op.name << " " << choice.algorithm;
      }
    }
  }
  EXPECT_GT(most, 2U);
  ASSERT_TRUE(enumerate_choices(*trace, 64_MiB, false));
  for (const Op& op : trace->ops) EXPECT_EQ(op.choices.size(), 1U);
  trace->math = "tf32";
  ASSERT_TRUE(enumerate_choices(*trace, 64_MiB, true));
  EXPECT_TRUE(std::any_of(trace->ops[0].choices.begin(), trace->ops[0].choices.end(),
                          [](const Choice& choice) { return choice.math == "tf32"; }));
}

}  // namespace
}  // namespace superneurons
#else
TEST(CudaNative, is_built) { GTEST_SKIP() << "built without CUDA"; }
#endif
