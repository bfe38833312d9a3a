// Values with every field unlike its default, so that a forgotten field shows.
#pragma once

#include "ir/device_profile.h"
#include "ir/plan.h"
#include "ir/trace.h"

namespace superneurons {

inline Trace rich_trace() {
  Trace trace;
  trace.name = "rich \"net\" \\ \n é";
  trace.origin = "made by a test";
  trace.device = "Toy 4000";
  trace.lowering = "paper";
  trace.network = "toy";
  trace.batch = 64;
  trace.math = "tf32";
  trace.step_ns_untraced = 1000_ns;
  trace.step_ns_traced = 1100_ns;
  trace.dropped_records = 3;
  trace.allocated_peak = 5000_B;
  trace.reserved_peak = 8192_B;
  trace.owned_ns = 900_ns;
  trace.orphan_ns = 40_ns;
  trace.orphans = 2;
  trace.capabilities = {Capability::exact, Capability::inferred};
  trace.tensors = {{.name = "w",
                    .bytes = 64_B,
                    .dtype = "bf16",
                    .shape = {4, 8},
                    .layer = "l/1",
                    .role = Role::parameter,
                    .freed_before = {},
                    .init = "uniform",
                    .init_scale = 0.1},
                   {.name = "y",
                    .bytes = 1_MiB,
                    .dtype = "u8",
                    .shape = {},
                    .layer = "",
                    .role = Role::saved,
                    .freed_before = OpId{2},
                    .init = "",
                    .init_scale = 0},
                   {.name = "w'",
                    .bytes = 64_B,
                    .dtype = "f32",
                    .shape = {0},
                    .layer = "",
                    .role = Role::gradient,
                    .freed_before = {},
                    .init = "",
                    .init_scale = 0}};
  Op op;
  op.name = "op \x01";
  op.kind = "aten::add_";
  op.phase = Phase::recompute;
  op.layer = "l/1";
  op.reads = {{{0}, 0_B, 64_B}};
  op.writes = {{{0}, 32_B, 32_B}, {{1}, 0_B, 1_MiB}};
  op.once = {{0}};
  Choice slow;
  slow.ns = 7_ns;
  op.choices = {{.algorithm = "gemm",
                 .math = "fp32",
                 .workspace = 4096_B,
                 .ns = 5_ns,
                 .deterministic = false,
                 .omits = {{1}}},
                slow};
  op.recorded = 1;
  op.kernels = {{"k<float>", 4_ns}, {"", 0_ns}};
  op.attributes = {{"pad", 1}, {"epsilon", 1e-5}, {"third", 1.0 / 3}, {"zero", -0.0}};
  op.rerunnable = false;
  op.random = true;
  op.micro_batch = 2;
  op.launch_group = 0;
  op.host_ns = 11_ns;
  op.host_sync_ns = 12_ns;
  op.flops = 1.5e300;
  op.bytes_moved = 13_B;
  trace.ops.push_back(op);
  Op last;
  last.name = "last";
  last.kind = "Copy";
  last.writes = {{{2}, 0_B, 64_B}};
  last.choices.emplace_back();
  trace.ops.push_back(last);
  trace.carry = {{{2}, {0}}};
  return trace;
}

inline Plan rich_plan() {
  Plan plan;
  plan.trace_hash = "0123456789abcdef";
  plan.policy = "liveness+offload:lookahead=3";
  plan.allocator = "best_fit";
  plan.budget = {12_GiB, 1_GiB};
  plan.begin = {{Place::device}, {Place::host}, {Place::nowhere}};
  plan.steps = {run_step({0}, 0), run_step({1}, 2, {{4}, {5}})};
  for (const StepKind kind :
       {StepKind::free, StepKind::offload, StepKind::prefetch, StepKind::free_host})
    plan.steps.push_back(tensor_step(kind, {7}));
  plan.reasons = {{1, "because \"y\" leaves"}, {0, ""}};
  return plan;
}

inline DeviceProfile rich_profile() {
  DeviceProfile profile;
  profile.name = "toy";
  profile.device = "Toy 4000";
  profile.measured = true;
  profile.origin = "a test";
  profile.device_memory = 2_GiB;
  profile.host_memory = 3_GiB;
  profile.offload = {{{0_B, 5_ns}, {1000_B, 105_ns}}, 20};
  profile.prefetch = {{{4096_B, 500_ns}}, 0.1};
  profile.both_bytes_per_ns = 93.25;
  profile.memory_bound = {0.01, 0.02, 0.03};
  profile.compute_bound = {0.04, 0.05, 0.06};
  profile.launch_ns = 1_ns;
  profile.copy_issue_ns = 2_ns;
  profile.event_ns = 3_ns;
  profile.gap_ns = 4_ns;
  profile.wait_ns = 5_ns;
  profile.alloc_ns = 6_ns;
  profile.pin_ns_per_byte = 0.7;
  profile.flops_per_ns = 8.5;
  profile.tf32_flops_per_ns = 9.5;
  profile.memory_bytes_per_ns = 10.5;
  profile.efficiency = {{"", {0.5, 0.25}}, {"Conv2dForward", {0.75, 1.0 / 3}}};
  return profile;
}

}  // namespace superneurons
