#include "networks/lowering_style.h"

#include <fmt/core.h>

#include <algorithm>

namespace superneurons {
namespace {

constexpr LoweringEntry kLowerings[] = {
    {Lowering::native, "native", "what a good runtime does"},
    {Lowering::paper, "paper", "as the runtime of SuperNeurons did"},
    {Lowering::caffe, "caffe", "model of Caffe: ReLU and dropout in place, a gradient per use"},
    {Lowering::torch, "torch", "model of Lua Torch7: ReLU and sums in place"},
    {Lowering::mxnet, "mxnet", "model of MXNet with cuDNN: backward of ReLU reads its input"},
    {Lowering::tensorflow, "tensorflow",
     "model of TensorFlow 1: elementwise ops take over buffers, updates at once"},
};

}  // namespace

LoweringStyle style_of(Lowering lowering) {
  using AddGradient = LoweringStyle::AddGradient;
  LoweringStyle style;
  switch (lowering) {
    case Lowering::caffe:
      style.add_in_place = false;
      style.dropout_in_place = true;
      style.add_gradient = AddGradient::copied;
      style.fresh_sums = true;
      style.held_gradients = true;
      break;
    case Lowering::torch:
      style.fresh_sums = true;
      style.held_gradients = true;
      break;
    case Lowering::mxnet:
      style.relu_keeps_input = true;
      style.add_gradient = AddGradient::copied_but_one;
      style.held_gradients = true;
      break;
    case Lowering::tensorflow:
      style.input_gradient_first = true;
      style.updates_at_once = true;
      break;
    case Lowering::native:
    case Lowering::paper:
      break;
  }
  return style;
}

std::span<const LoweringEntry> lowerings() { return kLowerings; }

std::string_view name_of(Lowering lowering) {
  for (const LoweringEntry& entry : kLowerings)
    if (entry.lowering == lowering) return entry.name;
  return "";
}

Result<Lowering> find_lowering(std::string_view name) {
  for (const LoweringEntry& entry : kLowerings)
    if (entry.name == name) return entry.lowering;
  std::string all;
  for (const LoweringEntry& entry : kLowerings)
    all += fmt::format("{}{}", all.empty() ? "" : ", ", entry.name);
  return Error{ErrorCode::bad_usage,
               fmt::format("no lowering {} (there are {})", name.substr(0, 64), all)};
}

}  // namespace superneurons
