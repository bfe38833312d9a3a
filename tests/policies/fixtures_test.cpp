#include "tests/policies/fixtures.h"

#include <fmt/core.h>

#include "memory/placement.h"
#include "networks/network.h"

namespace superneurons {
namespace {

/// In the kinds of networks/operations.md: op names are unique, kinds are not.
void name_kinds(Trace& trace) {
  for (Op& op : trace.ops) op.kind = op.name.substr(0, op.name.find('.'));
}

Trace chain() {
  Trace trace = mini(R"(
    tensor data 64K input carry
    tensor w 4K parameter carry
    tensor v 4K parameter carry
    tensor m 4K optimizer_state carry
    tensor y1 256K activation
    tensor y2 256K activation
    tensor y3 128K activation
    tensor y4 128K activation
    tensor mask 32K saved
    tensor y5 128K activation
    tensor d5 128K activation_gradient
    tensor d4 128K activation_gradient
    tensor d3 128K activation_gradient
    tensor d2 256K activation_gradient
    tensor d1 256K activation_gradient
    tensor dw 4K gradient
    tensor dv 4K gradient
    op Conv2dForward.1 forward : data w -> y1 @400000 ws=32K
    op LrnForward.1 forward : y1 -> y2 @300000
    op MaxPoolForward.1 forward : y2 -> y3 @200000
    op Conv2dForward.2 forward : y3 v -> y4 @400000 ws=64K
    op ReluForward.2 forward : y4 -> y4 @100000
    op DropoutForward.2 forward random : y4 -> y5 mask @100000
    op Loss.1 forward : y5 -> d5 @100000
    op DropoutBackward.2 backward : d5 mask -> d4 @200000
    op ReluBackward.2 backward : y4 d4 -> d4 @200000
    op Conv2dBackwardFilter.2 backward : y3 d4 -> dv @400000
    op Conv2dBackwardData.2 backward : v d4 -> d3 @400000
    op MaxPoolBackward.1 backward : y2 y3 d3 -> d2 @400000
    op LrnBackward.1 backward : y1 y2 d2 -> d1 @300000
    op Conv2dBackwardFilter.1 backward : data d1 -> dw @400000
    op SgdUpdate.w update once : w dw m -> w m @10000
    op SgdUpdate.v update once : v dv -> v @10000
  )");
  name_kinds(trace);
  trace.tensors[4].freed_before = OpId{13};
  return trace;
}

/// In-place chains, partial writes, accumulation, several outputs, fixed outputs, a tensor that is
/// written again when its first value is dead, and gradients that are new storages every step.
Trace corners() {
  Trace trace = mini(R"(
    tensor x 32K input carry
    tensor w 8K parameter carry
    tensor running 4K buffer carry
    tensor scratchpad 16K temporary carry
    tensor h 64K activation
    tensor s 4K saved
    tensor p 64K activation
    tensor q 64K activation
    tensor unused 16K saved
    tensor g_old 8K gradient
    tensor g_new 8K gradient
    tensor dp 64K activation_gradient
    tensor dq 64K activation_gradient
    carry g_new g_old
    op norm.1 forward fixed=running : x w running -> h s running @5000
    op relu.1 forward : h -> h @3000
    op half.1 forward : h -> p[0:32K] unused @3000
    op half.2 forward : h -> p[32K:64K] @3000
    op scale.1 forward : p -> scratchpad @3000
    op tanh.1 forward : p scratchpad -> q @3000
    op loss.1 forward : q -> dq @3000
    op tanh.1.b backward : q dq -> dp @6000
    op half.1.b backward : p dp -> dq @6000
    op relu.1.b backward : h dq -> dq @6000
    op norm.1.b backward : x s dq w -> g_new @6000
    op more.1.b backward : h g_new -> g_new @6000
    op sgd.1 update once : w g_new -> w @1000
  )");
  trace.tensors[7].freed_before = OpId{8};
  return trace;
}

Trace residual() {
  Trace trace = mini(R"(
    tensor data 32K input carry
    tensor w 4K parameter carry
    tensor a 128K activation
    tensor b 128K activation
    tensor c 128K activation
    tensor e 128K activation
    tensor f 128K activation
    tensor db 128K activation_gradient
    tensor de 128K activation_gradient
    tensor dw 4K gradient
    op Conv2dForward.1 forward : data w -> a @200000
    op BatchNormForward.1 forward : a -> b @100000
    op ReluForward.1 forward : b -> b @100000
    op Conv2dForward.2 forward : b w -> c @200000
    op BatchNormForward.2 forward : c -> e @100000
    op AddForward.2 forward : e b -> e @100000
    op ReluForward.2 forward : e -> e @100000
    op Conv2dForward.3 forward : e w -> f @200000
    op Loss.1 forward : f -> de @50000
    op Conv2dBackwardFilter.3 backward : e de -> dw @200000
    op ReluBackward.2 backward : e de -> de @100000
    op BatchNormBackward.2 backward : c de -> db @100000
    op Accumulate.1 backward : db de -> db @100000
    op ReluBackward.1 backward : b db -> db @100000
    op BatchNormBackward.1 backward : a db b -> dw @100000
    op SgdUpdate.w update once : w dw -> w @10000
  )");
  name_kinds(trace);
  return trace;
}

}  // namespace

Trace layered_trace(int layers) {
  std::string text =
      "tensor x0 64K input carry\ntensor w 4K parameter carry\ntensor dw 4K gradient\n";
  std::string ops;
  for (int i = 1; i <= layers; ++i) {
    text += fmt::format(
        "tensor y{0} 64K activation\ntensor x{0} 64K activation\n"
        "tensor s{0} 1K saved\ntensor d{0} 64K activation_gradient\n",
        i);
    ops += fmt::format(
        "op Conv2dForward.{0} forward : x{1} w -> y{0} @70000\n"
        "op BatchNormForward.{0} forward : y{0} -> x{0} s{0} @20000\n"
        "op ReluForward.{0} forward : x{0} -> x{0} @10000\n",
        i, i - 1);
  }
  text += fmt::format("tensor d{} 64K activation_gradient\n", layers + 1);
  ops += fmt::format("op Loss.1 forward : x{0} -> d{1} @10000\n", layers, layers + 1);
  for (int i = layers; i >= 1; --i)
    ops += fmt::format(
        "op ReluBackward.{0} backward : x{0} d{1} -> d{1} @20000\n"
        "op BatchNormBackward.{0} backward : y{0} s{0} d{1} -> d{0} @40000\n"
        "op Conv2dBackwardFilter.{0} backward : x{2} d{0} -> dw @100000\n"
        "op Conv2dBackwardData.{0} backward : w d{0} -> d{0} @100000\n",
        i, i + 1, i - 1);
  Trace trace = mini(text + ops + "op SgdUpdate.w update once : w dw -> w @10000\n");
  name_kinds(trace);
  for (Op& op : trace.ops) op.layer = op.name.substr(op.name.find('.') + 1);
  return trace;
}

Trace network_trace(const std::string& network, Lowering lowering, std::int64_t batch) {
  const Result<Network> net = find_network(network);
  Result<Trace> trace = lower(*net, {.batch = batch, .lowering = lowering});
  estimate_durations(*trace, slow_link());
  return *trace;
}

std::vector<NamedTrace> policy_traces() {
  return {{"chain", chain()},
          {"corners", corners()},
          {"residual", residual()},
          {"layered", layered_trace(6)},
          {"small_cnn", network_trace("small_cnn", Lowering::native, 4)},
          {"small_cnn_paper", network_trace("small_cnn", Lowering::paper, 4)}};
}

DeviceProfile slow_link() {
  DeviceProfile profile;
  profile.name = "slow_link";
  profile.device_memory = 1_GiB;
  profile.host_memory = 1_GiB;
  for (TransferCurve* curve : {&profile.offload, &profile.prefetch}) {
    curve->points = {{1_KiB, 1024_ns}, {1_MiB, 1048576_ns}};
    curve->bytes_per_ns = 1;
  }
  profile.flops_per_ns = 1000;
  profile.memory_bytes_per_ns = 10;
  return profile;
}

Bytes peak_of(const Trace& trace, const std::string& policy) {
  const Result<Plan> plan = plan_for(trace, request_for(policy, 1_GiB));
  if (!plan) return {-1};
  const Result<Bytes> arena = smallest_arena(trace, *plan);
  return arena ? *arena : Bytes{-1};
}

}  // namespace superneurons
