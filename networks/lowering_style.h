// The habits in which runtimes differ when they turn layers into ops: what works in place, what is
// shared, what is copied, what is held. A plan frees, moves and repeats but cannot make one tensor
// of two, so that this belongs to the lowering; what a runtime frees and when is a policy
// (policies/models.cpp puts the two together).
//
// The frameworks here are *models*, after what is documented or stands in the sources of the
// versions that the SuperNeurons paper met (2017). They are not the programs: no fragmentation, no
// library handles, none of the scratch of layers that are one op here.
//
//   caffe       A blob has data and diff, kept for good (caffe/blob.hpp, syncedmem). Prototxts run
//               ReLU and Dropout in place, diffs too. An output with several readers gets a Split
//               layer: data shared, a diff for each branch and one for their sum
//               (insert_splits.cpp, split_layer). Eltwise SUM writes a blob of its own and copies
//               its diff to each input. BatchNorm in place keeps x_norm_ and temp_, as much as data
//               and diff of an output that is not in place, as which it stands here; Scale's copy
//               is left out.
//   torch       Lua Torch7 nn: each module keeps `output` and `gradInput`. nn.ReLU(true) and
//               nn.CAddTable(true), as fb.resnet.torch writes them, work in place both ways;
//               nn.ConcatTable sums the gradients of its branches in a tensor of its own.
//               Parameters' gradients are one flat tensor that stays (getParameters).
//   mxnet       NNVM's PlanMemory shares memory by reference counts and works in place where an op
//               allows it and nobody else reads the input. Activation declares that backward reads
//               its *input* too where cuDNN is used (activation-inl.h, DeclareBackwardDependency),
//               so that ReLU cannot overwrite it. A sum hands its gradient to one input and copies
//               it for the others. Gradients of parameters are bound arrays that stay.
//   tensorflow  Reference counts: a buffer goes when its last reader is done. Elementwise ops take
//               over the buffer of an input that nobody else holds
//               (forward_input_or_allocate_output; ReluGrad and FusedBatchNormGrad read what allows
//               that), gradients are shared by the branches of a sum. _Conv2DGrad builds the
//               input's gradient before the filter's; each variable is updated once its layer's
//               gradients are there (GATE_OP).
#pragma once

#include "networks/network.h"

namespace superneurons {

struct LoweringStyle {
  bool relu_keeps_input = false;  // backward reads x beside y, so forward is not in place
  bool add_in_place = true;       // forward
  bool dropout_in_place = false;  // both ways; forward also on the output of a ReLU, whose
                                  // backward finds the same zeros or zero gradients
  enum class AddGradient : std::uint8_t {
    shared,          // all inputs take the sum's gradient itself
    copied_but_one,  // the first does
    copied           // none does
  };
  AddGradient add_gradient = AddGradient::shared;
  bool fresh_sums = false;  // where branches meet their gradients are summed in a new tensor
  bool input_gradient_first = false;  // of convolution and linear, before those of the parameters
  bool held_gradients = false;        // of parameters: there between training steps
  bool updates_at_once = false;       // of parameters, after each layer's backward
};

/// Nothing for the paper's, which has a lowering of its own.
LoweringStyle style_of(Lowering lowering);

}  // namespace superneurons
