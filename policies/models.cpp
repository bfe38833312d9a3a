// The table of framework models: baselines for the tables of the SuperNeurons paper. Their sources
// stand beside what they make and share, in networks/lowering_style.h. What they free:
//
//   caffe         nothing: blobs stay, diffs too.
//   torch         nothing: `output` and `gradInput` of every module stay.
//   torch_shared  gradients of activations only: fb.resnet.torch's shareGradInput gives modules a
//                 common gradInput in turns, optnet does so by liveness.
//   mxnet         what layers make, by reference counts; gradients of parameters are bound arrays.
//   mxnet_mirror  the same, and outputs of cheap layers are made again for backward, kept from then
//                 on (MXNET_BACKWARD_DO_MIRROR; Chen et al. 2016, sublinear memory: speed-centric
//                 in the paper's words).
//   tensorflow    everything after its last reader, by reference counts.
#include "policies/policy.h"

namespace superneurons {

std::span<const ModelEntry> framework_models() {
  static constexpr ModelEntry entries[] = {
      {"caffe", "keep_all", "caffe", "every blob stays, a gradient beside each"},
      {"torch", "keep_all", "torch", "outputs and input gradients of all modules stay"},
      {"torch_shared", "liveness:frees=gradients", "torch",
       "as torch, with input gradients in shared buffers"},
      {"mxnet", "liveness:frees=layers", "mxnet", "memory is shared by reference counts"},
      {"mxnet_mirror", "liveness:frees=layers+recompute:need=all,strategy=speed", "mxnet",
       "as mxnet, and outputs of cheap layers are made again for backward"},
      {"tensorflow", "liveness", "tensorflow", "each tensor goes after its last reader"},
  };
  return entries;
}

const ModelEntry* find_model(std::string_view name) {
  for (const ModelEntry& entry : framework_models())
    if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace superneurons
