// Softmax and cross entropy.
#include "replay/cuda/elementwise.h"
#include "replay/cuda/native.h"

namespace superneurons {
namespace {

struct Loss {
  std::int64_t n = 0;
  int classes = 0;
};
Result<Loss> loss_of(const Op& op) {
  OpAttributes get(op);
  const Loss loss{get.count("n"), get.count("classes")};
  if (get.fault()) return *get.fault();
  return loss;
}

const std::int32_t* labels(const KernelCall& call) {
  return reinterpret_cast<const std::int32_t*>(call.reads[1]);
}

Result<Runner> make_forward(const Making& making) {
  const auto loss = loss_of(making.op());
  if (!loss) return loss.error();
  const Expected table{capped_product({loss->n, loss->classes})};
  if (Status good = expect(making, {table, {loss->n}}, {table, {1}}); !good) return good.error();
  return Runner([&libraries = making.libraries, loss = *loss](const KernelCall& call) -> Status {
    SUPERNEURONS_TRY(launch_softmax_loss(input(call, 0), labels(call), output(call, 0),
                                         output(call, 1), loss.n, loss.classes, libraries.stream));
    return Ok{};
  });
}

Result<Runner> make_backward(const Making& making) {
  const auto loss = loss_of(making.op());
  if (!loss) return loss.error();
  const Expected table{capped_product({loss->n, loss->classes})};
  if (Status good = expect(making, {table, {loss->n}}, {table}); !good) return good.error();
  return Runner([&libraries = making.libraries, loss = *loss](const KernelCall& call) -> Status {
    SUPERNEURONS_TRY(launch_softmax_loss_backward(input(call, 0), labels(call), output(call, 0),
                                                  loss.n, loss.classes, libraries.stream));
    return Ok{};
  });
}

constexpr NativeKernel kKernels[] = {
    {"SoftmaxCrossEntropyForward", make_forward},
    {"SoftmaxCrossEntropyBackward", make_backward},
};

}  // namespace

std::span<const NativeKernel> loss_kernels() { return kKernels; }

}  // namespace superneurons
