// Trace: one training step of a program, as tensors and ops in executed order. Plain data; its text
// form is JSON Lines (traces/FORMAT.md, ir/trace_io.h).
//
// A tensor is one storage; views are dissolved into byte ranges of their storage. Each write of a
// tensor makes its next *version*; the versions that an op reads and writes follow from the order
// of the ops (ir/dataflow.h) and are never stored.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/units.h"

namespace superneurons {

enum class Role : std::uint8_t {
  input,  // the batch: data and labels
  parameter,
  buffer,    // running statistics, counters
  gradient,  // of a parameter
  optimizer_state,
  activation,  // a layer's output
  activation_gradient,
  saved,  // kept for backward but no layer's output: masks, statistics, reserve space
  temporary,
};
inline constexpr std::array<std::string_view, 9> kRoleNames = {
    "input",      "parameter",           "buffer", "gradient", "optimizer_state",
    "activation", "activation_gradient", "saved",  "temporary"};

enum class Phase : std::uint8_t { forward, backward, recompute, update, other };
inline constexpr std::array<std::string_view, 5> kPhaseNames = {"forward", "backward", "recompute",
                                                                "update", "other"};

/// How well a fact is known. A policy names the facts it needs and is refused where they lack.
enum class Capability : std::uint8_t { none, inferred, exact };
inline constexpr std::array<std::string_view, 3> kCapabilityNames = {"none", "inferred", "exact"};

/// Facts a trace may hold. `accesses`: which bytes each op reads and writes. `frees`: when the
/// program gave storages back. `durations`: measured device time per op. `workspaces`: bytes per
/// choice. `choices`: more than the recorded way to do an op. `layers`, `phases`: names of each.
/// `flops`: arithmetic per op. `kernels`: kernels per op. `host_times`: host time to issue each op.
/// `native`: attributes from which the built-in kernels can run the op again.
enum class Fact : std::uint8_t {
  accesses,
  frees,
  durations,
  workspaces,
  choices,
  layers,
  phases,
  flops,
  kernels,
  host_times,
  native
};
inline constexpr std::array<std::string_view, 11> kFactNames = {
    "accesses", "frees", "durations", "workspaces", "choices", "layers",
    "phases",   "flops", "kernels",   "host_times", "native"};

struct Tensor {
  std::string name;                 // unique in the trace, for messages
  Bytes bytes{};                    // > 0
  std::string dtype = "f32";        // f32 f16 bf16 f64 i64 i32 u8 ...; informative
  std::vector<std::int64_t> shape;  // may be empty
  std::string layer;                // layer or module path, "" if unknown
  Role role = Role::temporary;
  std::optional<OpId> freed_before;  // the program freed it before this op; none: alive at the end.
                                     // May equal ops.size(): freed after the last op.
  std::string init;  // first content in native replay: "zeros", "ones", "uniform" in
                     // [-init_scale, init_scale], "labels" below init_scale; "": hashed bytes
  double init_scale = 0;
};

/// A byte range of one tensor; `offset + length <= tensor.bytes`, `length > 0`.
struct Access {
  TensorId tensor;
  Bytes offset{};
  Bytes length{};
};

/// One way to do an op.
struct Choice {
  std::string algorithm{};  // e.g. "IMPLICIT_PRECOMP_GEMM"; "" where there is only one way
  std::string math{};       // "fp32", "tf32", ...; "" if it does not apply
  Bytes workspace{};        // bytes needed only while the op runs
  Nanoseconds ns{};         // device time, first kernel's start to last kernel's end
  bool deterministic = true;
  std::vector<TensorId> omits{};  // outputs this choice does not produce (only backward would read)
};

struct Kernel {
  std::string name;
  Nanoseconds ns{};
};

struct Op {
  std::string name;  // unique in the trace, for messages
  std::string kind;  // "Conv2dForward" ..., or the ATen name
  Phase phase = Phase::other;
  std::string layer;
  std::vector<Access> reads;
  std::vector<Access> writes;   // a tensor in reads and writes is updated in place
  std::vector<TensorId> once;   // outputs written on the op's first run only; a rerun neither
                                // reads nor writes them (running statistics, counters)
  std::vector<Choice> choices;  // at least one
  std::uint32_t recorded = 0;   // the choice that the recorded step took
  std::vector<Kernel> kernels;
  std::map<std::string, double> attributes;  // for native replay: stride, pad, epsilon, rate ...
  bool rerunnable = true;                    // false: must run exactly once in a training step
  bool random = false;                       // draws from (seed, op, training step)
  std::int32_t micro_batch = 0;
  std::int32_t launch_group = -1;  // ops of one multi-tensor launch share a number; -1: none
  Nanoseconds host_ns{};           // host time to issue it
  Nanoseconds host_sync_ns{};      // > 0: the host waits for the device after it; host time of that
  double flops = 0;                // arithmetic operations; 0 if unknown
  Bytes bytes_moved{};             // device-memory traffic of an ideal implementation; 0 if unknown
};

/// From one training step to the next: `end` at the end holds the value that `start` has at the
/// next start. Mostly the same tensor (parameters, momentum, the input buffer); two tensors where a
/// program makes a new storage every step. A tensor is alive at the start iff it is a `start`.
struct Carry {
  TensorId end;
  TensorId start;
};

struct Trace {
  std::string name;      // e.g. "resnet50-b64"
  std::string origin;    // how it was made: command, versions, date
  std::string device;    // the device it was measured on, "" for none (cost model)
  std::string lowering;  // "native", "paper", "pytorch" ...
  std::string network;   // built-in network, "" otherwise
  std::int64_t batch = 0;
  std::string math = "fp32";       // "fp32" or "tf32"
  Nanoseconds step_ns_untraced{};  // training step with no tracer attached; 0: not measured
  Nanoseconds step_ns_traced{};    // the same while it was recorded
  std::array<Capability, kFactNames.size()> capabilities{};
  std::int64_t dropped_records = 0;
  // What the recording says of itself, for `check`; 0 where it is not known.
  Bytes allocated_peak{};    // most that the program's allocator had given out at one time
  Bytes reserved_peak{};     // most that it held of the device
  Nanoseconds owned_ns{};    // device time of the traced training steps that belongs to ops
  Nanoseconds orphan_ns{};   // and that belongs to none
  std::int64_t orphans = 0;  // kernels and copies of no op

  std::vector<Tensor> tensors;
  std::vector<Op> ops;
  std::vector<Carry> carry;

  Tensor& operator[](TensorId id) { return tensors[id.index]; }
  const Tensor& operator[](TensorId id) const { return tensors[id.index]; }
  Op& operator[](OpId id) { return ops[id.index]; }
  const Op& operator[](OpId id) const { return ops[id.index]; }
  Capability capability(Fact fact) const { return capabilities[static_cast<std::size_t>(fact)]; }
};

/// True if the access covers its whole tensor.
inline bool covers(const Trace& trace, const Access& access) {
  return access.offset.count == 0 && access.length == trace[access.tensor].bytes;
}

/// The laws of a trace: ids in range, accesses inside their tensors, no tensor read before it was
/// written or carried in, no access after `freed_before`, each tensor at most once in a carry as
/// `end` and as `start`, both of one size, the `end` written and not freed, at least one choice per
/// op, `once` and `omits` among the writes, each once, a written tensor listed once per op, names
/// unique, nothing negative, sums of bytes below 2^62 and of times below 2^58. If the `start` of a
/// carry of two tensors is needed (TensorFlow::needed_at_start), no op reads it at or after the
/// first op that writes `end`, which takes over its home. Returns the first law broken, in linear
/// time.
struct Error;
std::optional<Error> find_fault(const Trace& trace);

}  // namespace superneurons
