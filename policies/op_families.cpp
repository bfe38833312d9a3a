#include "policies/op_families.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace superneurons {
namespace {

using Row = std::pair<std::string_view, OpFamily>;

// In the order of the alphabet, for the search.
constexpr std::array kOurs = {
    Row{"Accumulate", OpFamily::accumulate},
    Row{"AddForward", OpFamily::sum},
    Row{"AvgPoolForward", OpFamily::pooling},
    Row{"BatchNormForward", OpFamily::normalization},
    Row{"ConcatForward", OpFamily::concat},
    Row{"Conv2dForward", OpFamily::convolution},
    Row{"Copy", OpFamily::copy},
    Row{"DropoutForward", OpFamily::dropout},
    Row{"LinearForward", OpFamily::linear},
    Row{"LrnForward", OpFamily::normalization},
    Row{"MaxPoolForward", OpFamily::pooling},
    Row{"ReluForward", OpFamily::activation},
    Row{"SoftmaxCrossEntropyForward", OpFamily::loss},
};

// torch 2.11, native_functions.yaml: what the dispatcher calls below autograd, and the composite
// names that imports of other tracers hold.
constexpr std::array kAten = {
    Row{"_adaptive_avg_pool2d", OpFamily::pooling},
    Row{"_adaptive_avg_pool3d", OpFamily::pooling},
    Row{"_addmm_activation", OpFamily::linear},
    Row{"_batch_norm_with_update", OpFamily::normalization},
    Row{"_conv_depthwise2d", OpFamily::convolution},
    Row{"_convolution", OpFamily::convolution},
    Row{"_cudnn_attention_forward", OpFamily::attention},
    Row{"_cudnn_rnn", OpFamily::recurrent},
    Row{"_efficient_attention_forward", OpFamily::attention},
    Row{"_flash_attention_forward", OpFamily::attention},
    Row{"_fused_dropout", OpFamily::dropout},
    Row{"_fused_rms_norm", OpFamily::normalization},
    Row{"_grouped_mm", OpFamily::linear},
    Row{"_native_batch_norm_legit", OpFamily::normalization},
    Row{"_scaled_dot_product_cudnn_attention", OpFamily::attention},
    Row{"_scaled_dot_product_efficient_attention", OpFamily::attention},
    Row{"_scaled_dot_product_flash_attention", OpFamily::attention},
    Row{"_scaled_mm", OpFamily::linear},
    Row{"_thnn_fused_gru_cell", OpFamily::activation},
    Row{"_thnn_fused_lstm_cell", OpFamily::activation},
    Row{"_to_copy", OpFamily::copy},
    Row{"adaptive_avg_pool2d", OpFamily::pooling},
    Row{"adaptive_max_pool2d", OpFamily::pooling},
    Row{"add", OpFamily::sum},
    Row{"addbmm", OpFamily::linear},
    Row{"addmm", OpFamily::linear},
    Row{"addmv", OpFamily::linear},
    Row{"avg_pool2d", OpFamily::pooling},
    Row{"avg_pool3d", OpFamily::pooling},
    Row{"baddbmm", OpFamily::linear},
    Row{"batch_norm", OpFamily::normalization},
    Row{"bmm", OpFamily::linear},
    Row{"cat", OpFamily::concat},
    Row{"clone", OpFamily::copy},
    Row{"concat", OpFamily::concat},
    Row{"conv1d", OpFamily::convolution},
    Row{"conv2d", OpFamily::convolution},
    Row{"conv3d", OpFamily::convolution},
    Row{"conv_transpose2d", OpFamily::convolution},
    Row{"convolution", OpFamily::convolution},
    Row{"convolution_overrideable", OpFamily::convolution},
    Row{"copy", OpFamily::copy},
    Row{"cudnn_batch_norm", OpFamily::normalization},
    Row{"cudnn_convolution", OpFamily::convolution},
    Row{"cudnn_convolution_add_relu", OpFamily::convolution},
    Row{"cudnn_convolution_relu", OpFamily::convolution},
    Row{"cudnn_convolution_transpose", OpFamily::convolution},
    Row{"dropout", OpFamily::dropout},
    Row{"elu", OpFamily::activation},
    Row{"gelu", OpFamily::activation},
    Row{"glu", OpFamily::activation},
    Row{"group_norm", OpFamily::normalization},
    Row{"gru", OpFamily::recurrent},
    Row{"hardsigmoid", OpFamily::activation},
    Row{"hardswish", OpFamily::activation},
    Row{"hardtanh", OpFamily::activation},
    Row{"layer_norm", OpFamily::normalization},
    Row{"leaky_relu", OpFamily::activation},
    Row{"linear", OpFamily::linear},
    Row{"lstm", OpFamily::recurrent},
    Row{"matmul", OpFamily::linear},
    Row{"max_pool2d", OpFamily::pooling},
    Row{"max_pool2d_with_indices", OpFamily::pooling},
    Row{"max_pool3d_with_indices", OpFamily::pooling},
    Row{"mish", OpFamily::activation},
    Row{"mkldnn_convolution", OpFamily::convolution},
    Row{"mm", OpFamily::linear},
    Row{"mv", OpFamily::linear},
    Row{"native_batch_norm", OpFamily::normalization},
    Row{"native_dropout", OpFamily::dropout},
    Row{"native_group_norm", OpFamily::normalization},
    Row{"native_layer_norm", OpFamily::normalization},
    Row{"prelu", OpFamily::activation},
    Row{"relu", OpFamily::activation},
    Row{"relu6", OpFamily::activation},
    Row{"rms_norm", OpFamily::normalization},
    Row{"scaled_dot_product_attention", OpFamily::attention},
    Row{"sigmoid", OpFamily::activation},
    Row{"silu", OpFamily::activation},
    Row{"slow_conv3d", OpFamily::convolution},
    Row{"slow_conv_transpose2d", OpFamily::convolution},
    Row{"softplus", OpFamily::activation},
    Row{"stack", OpFamily::concat},
    Row{"tanh", OpFamily::activation},
    Row{"threshold", OpFamily::activation},
};

template <std::size_t N>
constexpr bool is_sorted(const std::array<Row, N>& rows) {
  for (std::size_t i = 1; i < N; ++i)
    if (!(rows[i - 1].first < rows[i].first)) return false;
  return true;
}
static_assert(is_sorted(kOurs) && is_sorted(kAten));

template <std::size_t N>
OpFamily find(const std::array<Row, N>& rows, std::string_view name) {
  const auto row =
      std::lower_bound(rows.begin(), rows.end(), name,
                       [](const Row& a, std::string_view wanted) { return a.first < wanted; });
  return row != rows.end() && row->first == name ? row->second : OpFamily::other;
}

}  // namespace

OpFamily family_of(std::string_view kind) {
  constexpr std::string_view kSpace = "aten::";
  if (!is_foreign(kind)) return find(kOurs, kind);
  if (kind.substr(0, kSpace.size()) != kSpace) return OpFamily::other;
  kind.remove_prefix(kSpace.size());
  kind = kind.substr(0, kind.find('.'));
  if (!kind.empty() && kind.back() == '_') kind.remove_suffix(1);
  return find(kAten, kind);
}

std::vector<OpFamily> families_of(const Trace& trace) {
  std::vector<OpFamily> families;
  families.reserve(trace.ops.size());
  for (const Op& op : trace.ops) families.push_back(family_of(op.kind));
  return families;
}

}  // namespace superneurons
