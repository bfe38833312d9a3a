#include "replay/inference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "replay/host_choices.h"
#include "replay/kernels.h"

namespace superneurons {
namespace {

constexpr Bytes kMostWorkspace{std::int64_t{1} << 30};

/// Up to the loss, with the host's ways to do its ops.
Result<Trace> forward_part(const Trace& trace) {
  Trace forward = trace;
  std::erase_if(forward.ops, [](const Op& op) { return op.phase != Phase::forward; });
  for (Op& op : forward.ops) {
    op.choices = {Choice{}};
    op.recorded = 0;
  }
  if (Status status = enumerate_host_choices(forward, kMostWorkspace, false); !status)
    return status.error();
  return forward;
}

class Inference {
 public:
  Inference(const Trace& forward, const Run& run)
      : forward_(forward), kernels_(make_host_native_kernels()), values_(forward.tensors.size()) {
    for (const auto& [tensor, bytes] : run.values) values_[tensor.index] = bytes;
    for (const Op& op : forward.ops)
      for (const auto* accesses : {&op.reads, &op.writes})
        for (const Access& access : *accesses) {
          auto& value = values_[access.tensor.index];
          value.resize(static_cast<std::size_t>(forward[access.tensor].bytes.count));
        }
  }

  Status prepare() { return kernels_->prepare(forward_, 0); }

  template <class T>
  T* at(const Access& access) {
    return reinterpret_cast<T*>(values_[access.tensor.index].data() + access.offset.count);
  }

  Status run(OpId id) {
    const Op& op = forward_[id];
    if (op.kind == "BatchNormForward") return normalise(op), Ok{};
    if (op.kind == "DropoutForward") {
      std::memcpy(at<std::byte>(op.writes[0]), at<std::byte>(op.reads[0]),
                  static_cast<std::size_t>(op.reads[0].length.count));
      return Ok{};
    }
    std::vector<std::byte*> reads, writes;
    for (const Access& access : op.reads) reads.push_back(at<std::byte>(access));
    for (const Access& access : op.writes) writes.push_back(at<std::byte>(access));
    const Choice& choice = op.choices[op.recorded];
    workspace_.resize(
        std::max(workspace_.size(), static_cast<std::size_t>(choice.workspace.count)));
    KernelCall call;
    call.op = id;
    call.choice = op.recorded;
    call.reads = reads;
    call.writes = writes;
    call.workspace = workspace_.data();
    call.workspace_bytes = choice.workspace;
    return kernels_->run(call, nullptr);
  }

 private:
  /// By the running statistics: reads are x, gamma, beta, mean, variance.
  void normalise(const Op& op) {
    const auto whole = [&op](const char* name) {
      return static_cast<std::int64_t>(op.attributes.find(name)->second);
    };
    const double epsilon = op.attributes.find("epsilon")->second;
    const std::int64_t n = whole("n"), channels = whole("c"), pixels = whole("h") * whole("w");
    const auto *x = at<const float>(op.reads[0]), *gamma = at<const float>(op.reads[1]),
               *beta = at<const float>(op.reads[2]), *mean = at<const float>(op.reads[3]),
               *variance = at<const float>(op.reads[4]);
    float* y = at<float>(op.writes[0]);
    for (std::int64_t plane = 0; plane < n * channels; ++plane) {
      const std::int64_t c = plane % channels;
      const double scale = gamma[c] / std::sqrt(variance[c] + epsilon);
      for (std::int64_t i = plane * pixels; i < (plane + 1) * pixels; ++i)
        y[i] = static_cast<float>((x[i] - mean[c]) * scale + beta[c]);
    }
  }

  const Trace& forward_;
  std::unique_ptr<Kernels> kernels_;
  std::vector<std::vector<std::byte>> values_;  // of each tensor
  std::vector<std::byte> workspace_;
};

/// The last test images are repeated to fill up the last batch.
std::vector<std::int64_t> test_batch(const DataSet& data, std::int64_t first, std::int64_t batch) {
  std::vector<std::int64_t> images(static_cast<std::size_t>(batch));
  for (std::int64_t i = 0; i < batch; ++i)
    images[static_cast<std::size_t>(i)] = data.train + std::min(first + i, data.test - 1);
  return images;
}

}  // namespace

Result<Accuracy> test_accuracy(const Trace& trace, const Run& run, const DataSet& data,
                               const std::atomic<bool>* stop) {
  const auto tensors = batch_tensors(trace, data);
  if (!tensors) return tensors.error();
  if (run.values.empty()) return Error{ErrorCode::bad_usage, "the run kept no values to test with"};
  const auto forward = forward_part(trace);
  if (!forward) return forward.error();
  Inference inference(*forward, run);
  if (Status status = inference.prepare(); !status) return status.error();
  const Op& loss = *std::find_if(forward->ops.rbegin(), forward->ops.rend(), [](const Op& op) {
    return op.kind == "SoftmaxCrossEntropyForward";
  });
  const std::int64_t classes = loss.writes[0].length.count / 4 / tensors->batch;
  auto* const pixels = inference.at<float>({tensors->images});
  auto* const labels = inference.at<std::int32_t>({tensors->labels});
  Accuracy accuracy{0, data.test};
  for (std::int64_t first = 0; first < data.test; first += tensors->batch) {
    write_images(data, test_batch(data, first, tensors->batch), pixels, labels);
    for (std::uint32_t op = 0; op < forward->ops.size(); ++op) {
      if (stop != nullptr && *stop) return Error{ErrorCode::cancelled, "stopped"};
      if (Status status = inference.run({op}); !status) return status.error();
    }
    const auto* probabilities = inference.at<const float>(loss.writes[0]);
    for (std::int64_t i = 0; i < std::min(tensors->batch, data.test - first); ++i) {
      const float* row = probabilities + i * classes;
      accuracy.correct += std::max_element(row, row + classes) - row == labels[i];
    }
  }
  return accuracy;
}

}  // namespace superneurons
