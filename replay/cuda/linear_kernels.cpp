// Linear layers through cuBLAS, with the choice's workspace and no other.
#include "replay/cuda/elementwise.h"
#include "replay/cuda/native.h"

namespace superneurons {
namespace {

struct Linear {
  int n = 0, in = 0, out = 0;
  std::vector<bool> tf32;  // by choice

  Expected x() const { return {capped_product({n, in})}; }
  Expected weight() const { return {capped_product({out, in})}; }
  Expected y() const { return {capped_product({n, out})}; }
};
Result<Linear> linear_of(const Op& op) {
  OpAttributes get(op);
  Linear linear{get.count("n"), get.count("in"), get.count("out"), {}};
  if (get.fault()) return *get.fault();
  for (const Choice& choice : op.choices) {
    if (!choice.algorithm.empty() && choice.algorithm != "CUBLAS")
      return Error{.code = ErrorCode::bad_input,
                   .message = "no algorithm '" + choice.algorithm + "' for it (there is CUBLAS)"};
    linear.tf32.push_back(choice.math == "tf32");
  }
  return linear;
}

/// c (m x n, column-major) = op(a) op(b). One stream and a workspace of a fixed size make cuBLAS
/// repeat its results to the bit.
Status multiply(Libraries& libraries, const KernelCall& call, bool tf32, cublasOperation_t op_a,
                cublasOperation_t op_b, int m, int n, int k, const float* a, int lda,
                const float* b, int ldb, float* c) {
  const float one = 1, zero = 0;
  cublasHandle_t cublas = libraries.cublas.get();
  SUPERNEURONS_TRY(cublasSetWorkspace(cublas, call.workspace,
                                      static_cast<std::size_t>(call.workspace_bytes.count)));
  SUPERNEURONS_TRY(
      cublasSetMathMode(cublas, tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_PEDANTIC_MATH));
  SUPERNEURONS_TRY(cublasSgemm(cublas, op_a, op_b, m, n, k, &one, a, lda, b, ldb, &zero, c, m));
  return Ok{};
}

// Row-major [rows][columns] is column-major (columns x rows).
Status forward(Libraries& libraries, const Linear& s, const KernelCall& call, const float* x,
               const float* weight, float* y) {
  return multiply(libraries, call, s.tf32[call.choice], CUBLAS_OP_T, CUBLAS_OP_N, s.out, s.n, s.in,
                  weight, s.in, x, s.in, y);
}
Status data_gradient(Libraries& libraries, const Linear& s, const KernelCall& call,
                     const float* weight, const float* dy, float* dx) {
  return multiply(libraries, call, s.tf32[call.choice], CUBLAS_OP_N, CUBLAS_OP_N, s.in, s.n, s.out,
                  weight, s.in, dy, s.out, dx);
}
Status weight_gradient(Libraries& libraries, const Linear& s, const KernelCall& call,
                       const float* x, const float* dy, float* dweight) {
  return multiply(libraries, call, s.tf32[call.choice], CUBLAS_OP_N, CUBLAS_OP_T, s.in, s.out, s.n,
                  x, s.in, dy, s.out, dweight);
}

Result<Runner> make_forward(const Making& making) {
  auto linear = linear_of(making.op());
  if (!linear) return linear.error();
  const bool bias = making.op().reads.size() == 3;
  std::vector<Expected> reads = {linear->x(), linear->weight()};
  if (bias) reads.push_back({linear->out});
  if (Status good = expect(making, reads, {linear->y()}); !good) return good.error();
  return Runner(
      [&libraries = making.libraries, s = *linear, bias](const KernelCall& call) -> Status {
        Status ran = forward(libraries, s, call, input(call, 0), input(call, 1), output(call, 0));
        if (!ran || !bias) return ran;
        SUPERNEURONS_TRY(
            launch_add_bias(output(call, 0), input(call, 2), s.n, s.out, 1, libraries.stream));
        return Ok{};
      });
}

Result<Runner> make_data(const Making& making) {
  auto linear = linear_of(making.op());
  if (!linear) return linear.error();
  if (Status good = expect(making, {linear->weight(), linear->y()}, {linear->x()}); !good)
    return good.error();
  return Runner([&libraries = making.libraries, s = *linear](const KernelCall& call) {
    return data_gradient(libraries, s, call, input(call, 0), input(call, 1), output(call, 0));
  });
}

Result<Runner> make_weight(const Making& making) {
  auto linear = linear_of(making.op());
  if (!linear) return linear.error();
  if (Status good = expect(making, {linear->x(), linear->y()}, {linear->weight()}); !good)
    return good.error();
  return Runner([&libraries = making.libraries, s = *linear](const KernelCall& call) {
    return weight_gradient(libraries, s, call, input(call, 0), input(call, 1), output(call, 0));
  });
}

Result<Runner> make_bias(const Making& making) {
  auto linear = linear_of(making.op());
  if (!linear) return linear.error();
  if (Status good = expect(making, {linear->y()}, {{linear->out}}); !good) return good.error();
  return Runner([&libraries = making.libraries, s = *linear](const KernelCall& call) -> Status {
    SUPERNEURONS_TRY(
        launch_column_sums(input(call, 0), output(call, 0), s.n, s.out, libraries.stream));
    return Ok{};
  });
}

Result<Runner> make_fused(const Making& making) {
  auto linear = linear_of(making.op());
  if (!linear) return linear.error();
  const bool bias = making.op().writes.size() == 3;
  std::vector<Expected> writes = {linear->x(), linear->weight()};
  if (bias) writes.push_back({linear->out});
  if (Status good = expect(making, {linear->x(), linear->weight(), linear->y()}, writes); !good)
    return good.error();
  return Runner(
      [&libraries = making.libraries, s = *linear, bias](const KernelCall& call) -> Status {
        const float* dy = input(call, 2);
        Status ran = weight_gradient(libraries, s, call, input(call, 0), dy, output(call, 1));
        if (!ran) return ran;
        if (bias)
          SUPERNEURONS_TRY(launch_column_sums(dy, output(call, 2), s.n, s.out, libraries.stream));
        return data_gradient(libraries, s, call, input(call, 1), dy, output(call, 0));
      });
}

constexpr NativeKernel kKernels[] = {
    {"LinearForward", make_forward},       {"LinearBackwardData", make_data},
    {"LinearBackwardWeight", make_weight}, {"LinearBackwardBias", make_bias},
    {"LinearBackward", make_fused},
};

}  // namespace

std::span<const NativeKernel> linear_kernels() { return kKernels; }

}  // namespace superneurons
