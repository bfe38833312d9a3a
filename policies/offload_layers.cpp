#include "policies/offload_layers.h"

#include <algorithm>

#include "policies/op_families.h"

namespace superneurons {
namespace {

/// Checkpoints of the paper: convolution, FC, fork, join, concat.
bool is_named(OpFamily family, std::string_view layers) {
  if (layers == "conv") return family == OpFamily::convolution;
  if (is_heavy(family)) return true;
  return layers == "checkpoints" &&
         (family == OpFamily::copy || family == OpFamily::sum || family == OpFamily::concat);
}

}  // namespace

std::vector<bool> offload_layers(const Trace& trace, std::string_view layers) {
  if (layers == "all") return {};
  std::vector<bool> named;
  bool ours = false;
  for (const Op& op : trace.ops) {
    const OpFamily family = family_of(op.kind);
    named.push_back(is_named(family, layers));
    ours = ours || (is_heavy(family) && !is_foreign(op.kind));
  }
  return layers == "auto" && !ours ? std::vector<bool>{} : named;
}

}  // namespace superneurons
