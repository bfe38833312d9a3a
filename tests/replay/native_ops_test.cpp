// Native kernels on the host: values known by hand, and ops that are refused.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/replay/one_op.h"

namespace superneurons {
namespace {

TEST(NativeOp, sums_copies_and_concatenation) {
  EXPECT_EQ(run_one({.kind = "AddForward", .attributes = {{"count", 2}, {"inputs", 3}}},
                    {{1, 2}, {10, 20}, {100, 200}}, {2})[0],
            (Floats{111, 222}));
  EXPECT_EQ(run_one({.kind = "Accumulate", .attributes = {{"count", 2}}}, {{1, 2}, {3, 4}}, {2})[0],
            (Floats{4, 6}));
  EXPECT_EQ(
      run_one({.kind = "Copy", .attributes = {{"count", 2}, {"outputs", 2}}}, {{1, 2}}, {2, 2}),
      (std::vector<Floats>{{1, 2}, {1, 2}}));
  const std::map<std::string, double> concat = {
      {"n", 2}, {"hw", 2}, {"inputs", 2}, {"c0", 1}, {"c1", 2}};
  const Floats whole = {1, 2, 5, 6, 7, 8, 3, 4, 9, 10, 11, 12};
  EXPECT_EQ(run_one({.kind = "ConcatForward", .attributes = concat},
                    {{1, 2, 3, 4}, {5, 6, 7, 8, 9, 10, 11, 12}}, {12})[0],
            whole);
  EXPECT_EQ(run_one({.kind = "ConcatBackward", .attributes = concat}, {whole}, {4, 8}),
            (std::vector<Floats>{{1, 2, 3, 4}, {5, 6, 7, 8, 9, 10, 11, 12}}));
}

TEST(NativeOp, sgd_with_momentum_and_decay) {
  // g' = 2 + 0.5 * 4 = 4; m = 0.5 * 8 + 4 = 8; w = 4 - 0.25 * 8 = 2.
  EXPECT_EQ(
      run_one(
          {.kind = "SgdUpdate",
           .attributes = {{"count", 1}, {"rate", 0.25}, {"momentum", 0.5}, {"weight_decay", 0.5}}},
          {{4}, {2}, {8}}, {1, 1}),
      (std::vector<Floats>{{2}, {8}}));
}

TEST(NativeOp, the_gradient_of_max_pooling_goes_to_the_first_maximum) {
  const std::map<std::string, double> attributes = {{"n", 1},   {"c", 1},      {"h", 2},
                                                    {"w", 2},   {"window", 2}, {"stride", 2},
                                                    {"pad", 0}, {"oh", 1},     {"ow", 1}};
  EXPECT_EQ(run_one({.kind = "MaxPoolBackward", .attributes = attributes}, {{0, 3, 3, 1}, {3}, {5}},
                    {4})[0],
            (Floats{0, 5, 0, 0}));
}

/// Message of prepare(), or "accepted".
std::string verdict(const OneOp& one, const std::vector<std::size_t>& reads,
                    const std::vector<std::size_t>& writes) {
  const Status status = make_host_native_kernels()->prepare(one_op_trace(one, reads, writes), 1);
  return status ? "accepted" : status.error().message;
}

TEST(Refusal, names_the_op_and_what_is_wrong) {
  EXPECT_EQ(verdict({.kind = "aten::addmm"}, {1}, {1}),
            "op op (aten::addmm): no native kernel of kind 'aten::addmm' on the host");
  EXPECT_EQ(verdict({.kind = "ReluForward"}, {4}, {4}),
            "op op (ReluForward): attribute count is missing");
  EXPECT_EQ(verdict({.kind = "ReluForward", .attributes = {{"count", 2147483648}}}, {4}, {4}),
            "op op (ReluForward): attribute count is 2147483648, more than a kernel on the host "
            "takes (below 2^31: would be of a smaller batch)");
  EXPECT_EQ(verdict({.kind = "ReluForward", .attributes = {{"count", 2.5}}}, {4}, {4}),
            "op op (ReluForward): attribute count must be a whole number from 1 on");
  EXPECT_EQ(verdict({.kind = "ReluForward", .attributes = {{"count", 5}}}, {4}, {5}),
            "op op (ReluForward): reads 0 (r0) has 16 bytes where its attributes make 20");
  EXPECT_EQ(verdict({.kind = "ReluForward", .attributes = {{"count", 4}}}, {4}, {}),
            "op op (ReluForward): has 0 writes where its kind has 1");
  EXPECT_EQ(
      verdict({.kind = "ReluForward", .attributes = {{"count", 4}}, .algorithm = "FAST"}, {4}, {4}),
      "op op (ReluForward): has no algorithm 'FAST' on the host (leave it empty)");
}

TEST(Refusal, of_shapes_that_do_not_fit_together) {
  OneOp op{.kind = "Conv2dForward",
           .attributes = {{"n", 1},
                          {"c", 1},
                          {"h", 4},
                          {"w", 4},
                          {"k", 1},
                          {"r", 3},
                          {"s", 3},
                          {"stride", 1},
                          {"pad", 0},
                          {"oh", 2},
                          {"ow", 2}}};
  EXPECT_EQ(verdict(op, {16, 9}, {4}), "accepted");
  op.algorithm = "IM2COL";
  EXPECT_EQ(verdict(op, {16, 9}, {4}),
            "op op (Conv2dForward): grants IM2COL 0 bytes of workspace where it needs 144");
  op.algorithm = "WINOGRAD";
  EXPECT_EQ(verdict(op, {16, 9}, {4}),
            "op op (Conv2dForward): has no algorithm 'WINOGRAD' on the host (IM2COL or DIRECT)");
  op.algorithm = "";
  op.attributes["oh"] = 3;
  EXPECT_EQ(verdict(op, {16, 9}, {6}),
            "op op (Conv2dForward): attribute oh does not follow from h, r, stride and pad");
  op.attributes["n"] = 2147483647;
  op.attributes["c"] = 2147483647;
  op.attributes["oh"] = 2;
  EXPECT_NE(verdict(op, {16, 9}, {4}), "accepted");  // overflows nowhere
}

TEST(Refusal, of_labels_that_are_no_class) {
  const Trace trace =
      one_op_trace({.kind = "SoftmaxCrossEntropyForward", .attributes = {{"n", 1}, {"classes", 2}}},
                   {2, 1}, {2, 1});
  const auto kernels = make_host_native_kernels();
  ASSERT_TRUE(kernels->prepare(trace, 1));
  Floats logits(2), probabilities(2), loss(1);
  std::int32_t label = 2;
  const auto bytes = [](auto* data) { return reinterpret_cast<std::byte*>(data); };
  std::byte* reads[] = {bytes(logits.data()), bytes(&label)};
  std::byte* writes[] = {bytes(probabilities.data()), bytes(loss.data())};
  KernelCall call;
  call.reads = reads;
  call.writes = writes;
  const Status status = kernels->run(call, nullptr);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message, "op op: label 2 of image 0 is no class below 2");
}

}  // namespace
}  // namespace superneurons
