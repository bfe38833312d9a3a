#include "networks/shares.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

namespace superneurons {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kKinds{{
    {"Conv2d", "CONV"},
    {"Linear", "FC"},
    {"Relu", "ACT"},
    {"MaxPool", "POOL"},
    {"AvgPool", "POOL"},
    {"Lrn", "LRN"},
    {"BatchNorm", "BN"},
    {"Dropout", "DROPOUT"},
    {"SoftmaxCrossEntropy", "SOFTMAX"},
    {"Concat", "CONCAT"},
    {"Accumulate", "FORK"},  // the gradient of an output with several readers
    {"SgdUpdate", "UPDATE"},
}};

class Shares {
 public:
  explicit Shares(const Trace& trace) : trace_(trace), counted_(trace.tensors.size(), false) {
    for (const Op& op : trace.ops)
      if (op.phase == Phase::forward && !op.layer.empty())
        kind_of_layer_.emplace(op.layer, layer_kind(op));
  }

  std::vector<LayerShare> shares() {
    for (const Op& op : trace_.ops) add(op);
    std::vector<LayerShare> rows;
    for (auto& [kind, row] : rows_) {
      row.kind = kind;
      row.layers = static_cast<std::int64_t>(layers_[kind].size());
      rows.push_back(std::move(row));
    }
    std::stable_sort(rows.begin(), rows.end(), [](const LayerShare& a, const LayerShare& b) {
      return std::pair(a.time(), a.memory()) > std::pair(b.time(), b.memory());
    });
    return rows;
  }

 private:
  LayerShare& row(std::string_view kind) { return rows_[std::string(kind)]; }

  /// Of the layer rather than of the op, where that is known: updates go to their layer.
  std::string_view kind_of(const Op& op) const {
    const std::string_view own = layer_kind(op);
    const auto found = kind_of_layer_.find(op.layer);
    return own == "UPDATE" && found != kind_of_layer_.end() ? found->second : own;
  }

  void add(const Op& op) {
    LayerShare& of = row(kind_of(op));
    ++of.ops;
    const Nanoseconds ns = op.choices.empty() ? Nanoseconds{} : op.choices[op.recorded].ns;
    if (op.phase == Phase::forward && !op.layer.empty())
      layers_[std::string(kind_of(op))].insert(op.layer);
    (op.phase == Phase::forward  ? of.forward
     : op.phase == Phase::update ? of.update
                                 : of.backward) += ns;
    for (const Access& read : op.reads) {
      if (trace_[read.tensor].role != Role::parameter || counted_[read.tensor.index]) continue;
      counted_[read.tensor.index] = true;
      of.parameters += trace_[read.tensor].bytes;
    }
    for (const Access& write : op.writes) {
      if (counted_[write.tensor.index]) continue;
      counted_[write.tensor.index] = true;
      const Tensor& tensor = trace_[write.tensor];
      if (tensor.role == Role::activation) of.activations += tensor.bytes;
      if (tensor.role == Role::activation_gradient) of.gradients += tensor.bytes;
      if (tensor.role == Role::saved) of.saved += tensor.bytes;
    }
  }

  const Trace& trace_;
  std::map<std::string, std::string_view, std::less<>> kind_of_layer_;
  std::map<std::string, LayerShare> rows_;
  std::map<std::string, std::set<std::string>> layers_;
  std::vector<bool> counted_;
};

}  // namespace

std::string_view layer_kind(const Op& op) {
  const std::string_view kind = op.kind;
  if (kind.starts_with("Copy")) return op.phase == Phase::forward ? "FORK" : "JOIN";
  // A sum of gradients belongs to the fork whose branches meet in it.
  if (kind == "AddForward") return op.phase == Phase::forward ? "JOIN" : "FORK";
  for (const auto& [prefix, name] : kKinds)
    if (kind.starts_with(prefix)) return name;
  return kind;
}

std::vector<LayerShare> layer_shares(const Trace& trace) { return Shares(trace).shares(); }

}  // namespace superneurons
