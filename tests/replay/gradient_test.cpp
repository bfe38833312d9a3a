// Backward kernels of the host against central differences of the forward ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "replay/initial.h"
#include "tests/replay/one_op.h"

namespace superneurons {
namespace {

/// In [-1, 1), the same every time, no two near each other within a few dozen (max pooling).
Floats values(std::size_t count, std::uint64_t salt = 0) {
  Floats all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto spread = static_cast<float>((i * 29 + salt * 7) % 61) / 30.5F - 1.0F;
    all[i] = spread + static_cast<float>(mix(salt, i) % 1000) * 1e-5F;
  }
  return all;
}

/// Gradient of sum(weights * forward(x)) by central differences.
Floats numeric(const std::function<Floats(const Floats&)>& forward, Floats x,
               const Floats& weights) {
  constexpr float kStep = 4e-3F;
  const auto objective = [&] {
    const Floats y = forward(x);
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += static_cast<double>(weights[i]) * y[i];
    return sum;
  };
  Floats gradient;
  for (float& each : x) {
    const float kept = each;
    each = kept + kStep;
    const double above = objective();
    each = kept - kStep;
    gradient.push_back(static_cast<float>((above - objective()) / (2 * kStep)));
    each = kept;
  }
  return gradient;
}

void expect_near(const Floats& actual, const Floats& wanted, float tolerance = 5e-3F) {
  ASSERT_EQ(actual.size(), wanted.size());
  bool any = false;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], wanted[i], tolerance * (1 + std::fabs(wanted[i]))) << "element " << i;
    any = any || std::fabs(wanted[i]) > 1e-3F;
  }
  EXPECT_TRUE(any) << "all gradients vanish";
}

struct ConvolutionCase {
  const char* algorithm;
  double r, s, stride, pad_h, pad_w, oh, ow;
};

class Convolution : public testing::TestWithParam<ConvolutionCase> {
 protected:
  OneOp op(const std::string& kind) const {
    const ConvolutionCase& c = GetParam();
    OneOp one = {.kind = kind,
                 .attributes = {{"n", 2},
                                {"c", 2},
                                {"h", 5},
                                {"w", 4},
                                {"k", 3},
                                {"r", c.r},
                                {"s", c.s},
                                {"stride", c.stride},
                                {"oh", c.oh},
                                {"ow", c.ow}},
                 .algorithm = c.algorithm,
                 .workspace = std::string(c.algorithm) == "IM2COL"
                                  ? static_cast<std::int64_t>(4 * 2 * c.r * c.s * c.oh * c.ow)
                                  : 0};
    if (c.pad_h == c.pad_w) {
      one.attributes["pad"] = c.pad_h;
    } else {
      one.attributes["pad_h"] = c.pad_h;
      one.attributes["pad_w"] = c.pad_w;
    }
    return one;
  }
  std::size_t outputs() const {
    return static_cast<std::size_t>(2 * 3 * GetParam().oh * GetParam().ow);
  }
  std::size_t weights() const {
    return static_cast<std::size_t>(3 * 2 * GetParam().r * GetParam().s);
  }
};

TEST_P(Convolution, gradients_match_differences) {
  const Floats x = values(80, 1), w = values(weights(), 2), b = values(3, 3);
  const Floats dy = values(outputs(), 4);
  const auto forward = [&](const Floats& in, const Floats& weight, const Floats& bias) {
    return run_one(op("Conv2dForward"), {in, weight, bias}, {outputs()})[0];
  };
  const Floats dx = numeric([&](const Floats& v) { return forward(v, w, b); }, x, dy);
  const Floats dw = numeric([&](const Floats& v) { return forward(x, v, b); }, w, dy);
  const Floats db = numeric([&](const Floats& v) { return forward(x, w, v); }, b, dy);
  expect_near(run_one(op("Conv2dBackwardData"), {w, dy}, {80})[0], dx);
  expect_near(run_one(op("Conv2dBackwardFilter"), {x, dy}, {weights()})[0], dw);
  OneOp bias = op("Conv2dBackwardBias");
  bias.algorithm = "";
  expect_near(run_one(bias, {dy}, {3})[0], db);
  const std::vector<Floats> fused = run_one(op("Conv2dBackward"), {x, w, dy}, {80, weights(), 3});
  expect_near(fused[0], dx);
  expect_near(fused[1], dw);
  expect_near(fused[2], db);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Convolution,
                         testing::Values(ConvolutionCase{"", 3, 3, 1, 1, 1, 5, 4},
                                         ConvolutionCase{"DIRECT", 3, 3, 2, 0, 0, 2, 1},
                                         ConvolutionCase{"DIRECT", 1, 3, 1, 0, 1, 5, 4},
                                         ConvolutionCase{"IM2COL", 3, 3, 1, 1, 1, 5, 4},
                                         ConvolutionCase{"IM2COL", 2, 2, 2, 1, 1, 3, 3},
                                         ConvolutionCase{"IM2COL", 1, 7, 1, 0, 3, 5, 4},
                                         ConvolutionCase{"IM2COL", 7, 1, 1, 3, 0, 5, 4},
                                         ConvolutionCase{"IM2COL", 2, 3, 2, 1, 0, 3, 1},
                                         ConvolutionCase{"IM2COL", 1, 1, 1, 0, 0, 5, 4}));

TEST(Gradient, linear) {
  const auto op = [](const std::string& kind) {
    return OneOp{.kind = kind, .attributes = {{"n", 3}, {"in", 4}, {"out", 5}}};
  };
  const Floats x = values(12, 1), w = values(20, 2), b = values(5, 3), dy = values(15, 4);
  const auto forward = [&](const Floats& in, const Floats& weight, const Floats& bias) {
    return run_one(op("LinearForward"), {in, weight, bias}, {15})[0];
  };
  const Floats dx = numeric([&](const Floats& v) { return forward(v, w, b); }, x, dy);
  const Floats dw = numeric([&](const Floats& v) { return forward(x, v, b); }, w, dy);
  const Floats db = numeric([&](const Floats& v) { return forward(x, w, v); }, b, dy);
  expect_near(run_one(op("LinearBackwardData"), {w, dy}, {12})[0], dx);
  expect_near(run_one(op("LinearBackwardWeight"), {x, dy}, {20})[0], dw);
  expect_near(run_one(op("LinearBackwardBias"), {dy}, {5})[0], db);
  const std::vector<Floats> fused = run_one(op("LinearBackward"), {x, w, dy}, {12, 20, 5});
  expect_near(fused[0], dx);
  expect_near(fused[1], dw);
  expect_near(fused[2], db);
}

TEST(Gradient, relu) {
  const auto op = [](const std::string& kind) {
    return OneOp{.kind = kind, .attributes = {{"count", 20}}};
  };
  const Floats x = values(20, 1), dy = values(20, 2);
  const auto forward = [&](const Floats& v) { return run_one(op("ReluForward"), {v}, {20})[0]; };
  expect_near(run_one(op("ReluBackward"), {forward(x), dy}, {20})[0], numeric(forward, x, dy));
}

TEST(Gradient, pooling) {
  const std::map<std::string, double> attributes = {{"n", 1},   {"c", 2},      {"h", 5},
                                                    {"w", 5},   {"window", 3}, {"stride", 2},
                                                    {"pad", 1}, {"oh", 3},     {"ow", 3}};
  const Floats x = values(50, 1), dy = values(18, 2);
  const auto forward = [&](const std::string& kind, const Floats& v) {
    return run_one({.kind = kind, .attributes = attributes}, {v}, {18})[0];
  };
  const Floats y = forward("MaxPoolForward", x);
  const auto maximum = [&](const Floats& v) { return forward("MaxPoolForward", v); };
  expect_near(run_one({.kind = "MaxPoolBackward", .attributes = attributes}, {x, y, dy}, {50})[0],
              numeric(maximum, x, dy));
  const auto average = [&](const Floats& v) { return forward("AvgPoolForward", v); };
  expect_near(run_one({.kind = "AvgPoolBackward", .attributes = attributes}, {dy}, {50})[0],
              numeric(average, x, dy));
}

TEST(Gradient, padded_average_pooling_of_stride_1) {
  const std::map<std::string, double> attributes = {{"n", 2},   {"c", 1},      {"h", 4},
                                                    {"w", 3},   {"window", 3}, {"stride", 1},
                                                    {"pad", 1}, {"oh", 4},     {"ow", 3}};
  const Floats x = values(24, 1), dy = values(24, 2);
  const auto forward = [&](const Floats& v) {
    return run_one({.kind = "AvgPoolForward", .attributes = attributes}, {v}, {24})[0];
  };
  EXPECT_FLOAT_EQ(forward(x)[0], (x[0] + x[1] + x[3] + x[4]) / 4);  // padding does not count
  expect_near(run_one({.kind = "AvgPoolBackward", .attributes = attributes}, {dy}, {24})[0],
              numeric(forward, x, dy));
}

TEST(Gradient, concatenation_of_many) {
  const std::map<std::string, double> attributes = {{"n", 2},  {"hw", 2}, {"inputs", 5}, {"c0", 1},
                                                    {"c1", 3}, {"c2", 1}, {"c3", 2},     {"c4", 1}};
  const std::vector<std::size_t> sizes = {4, 12, 4, 8, 4};
  std::vector<Floats> parts;
  for (std::size_t i = 0; i < sizes.size(); ++i) parts.push_back(values(sizes[i], i));
  const Floats dy = values(32, 9);
  const std::vector<Floats> back =
      run_one({.kind = "ConcatBackward", .attributes = attributes}, {dy}, sizes);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto forward = [&](const Floats& v) {
      std::vector<Floats> in = parts;
      in[i] = v;
      return run_one({.kind = "ConcatForward", .attributes = attributes}, in, {32})[0];
    };
    expect_near(back[i], numeric(forward, parts[i], dy));
  }
}

TEST(Gradient, local_response_normalisation) {
  // alpha large enough to matter.
  const std::map<std::string, double> attributes = {{"n", 2},       {"c", 7},    {"h", 1},
                                                    {"w", 2},       {"size", 5}, {"alpha", 0.5},
                                                    {"beta", 0.75}, {"k", 2}};
  const Floats x = values(28, 1), dy = values(28, 2);
  const auto forward = [&](const Floats& v) {
    return run_one({.kind = "LrnForward", .attributes = attributes}, {v}, {28})[0];
  };
  expect_near(
      run_one({.kind = "LrnBackward", .attributes = attributes}, {x, forward(x), dy}, {28})[0],
      numeric(forward, x, dy));
}

TEST(Gradient, batch_norm) {
  const std::map<std::string, double> attributes = {{"n", 3}, {"c", 2},          {"h", 2},
                                                    {"w", 2}, {"epsilon", 1e-5}, {"momentum", 0.1}};
  const Floats x = values(24, 1), gamma = values(2, 2), beta = values(2, 3), dy = values(24, 4);
  const auto forward = [&](const Floats& in, const Floats& g, const Floats& b) {
    return run_one({.kind = "BatchNormForward", .attributes = attributes},
                   {in, g, b, {0, 0}, {1, 1}}, {24, 2, 2, 2, 2});
  };
  const std::vector<Floats> made = forward(x, gamma, beta);
  const std::vector<Floats> back = run_one({.kind = "BatchNormBackward", .attributes = attributes},
                                           {x, dy, gamma, made[1], made[2]}, {24, 2, 2});
  expect_near(back[0], numeric([&](const Floats& v) { return forward(v, gamma, beta)[0]; }, x, dy));
  expect_near(back[1], numeric([&](const Floats& v) { return forward(x, v, beta)[0]; }, gamma, dy));
  expect_near(back[2], numeric([&](const Floats& v) { return forward(x, gamma, v)[0]; }, beta, dy));
  for (std::size_t c = 0; c < 2; ++c) {  // a tenth of the batch on nine tenths of 0 and 1
    const double variance = 1 / (made[2][c] * made[2][c]) - 1e-5;
    EXPECT_NEAR(made[3][c], 0.1 * made[1][c], 1e-6);
    EXPECT_NEAR(made[4][c], 0.9 + 0.1 * variance * 12 / 11, 1e-5);
  }
}

TEST(Gradient, dropout_uses_the_mask_of_its_training_step) {
  OneOp forward{.kind = "DropoutForward", .attributes = {{"count", 256}, {"rate", 0.25}}};
  forward.random = true;
  const Floats x(256, 3.0F), dy = values(256, 2);
  const std::vector<Floats> first = run_one(forward, {x}, {256, 64});
  EXPECT_EQ(run_one(forward, {x}, {256, 64}), first);
  const auto kept = static_cast<double>(std::count(first[0].begin(), first[0].end(), 4.0F));
  EXPECT_NEAR(kept, 192, 25);
  EXPECT_EQ(kept + static_cast<double>(std::count(first[0].begin(), first[0].end(), 0.0F)), 256);
  const OneOp backward{.kind = "DropoutBackward", .attributes = forward.attributes};
  const auto dropped = [&](const Floats& v) { return run_one(forward, {v}, {256, 64})[0]; };
  expect_near(run_one(backward, {dy, first[1]}, {256})[0], numeric(dropped, x, dy));
  forward.training_step = 1;
  EXPECT_NE(run_one(forward, {x}, {256, 64})[0], first[0]);
}

TEST(Gradient, softmax_with_cross_entropy) {
  const std::map<std::string, double> attributes = {{"n", 3}, {"classes", 4}};
  const std::int32_t raw[3] = {2, 0, 3};
  Floats labels(3);
  std::memcpy(labels.data(), raw, sizeof raw);
  const Floats logits = values(12, 1);
  const auto forward = [&](const Floats& v) {
    return run_one({.kind = "SoftmaxCrossEntropyForward", .attributes = attributes}, {v, labels},
                   {12, 1});
  };
  const Floats dlogits = run_one({.kind = "SoftmaxCrossEntropyBackward", .attributes = attributes},
                                 {forward(logits)[0], labels}, {12})[0];
  expect_near(dlogits, numeric([&](const Floats& v) { return forward(v)[1]; }, logits, {1}), 1e-3F);
}

}  // namespace
}  // namespace superneurons
