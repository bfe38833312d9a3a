// Reports: outcomes and timelines as text and JSON. Pure functions to strings; callers write files.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/result.h"
#include "simulator/outcome.h"
#include "simulator/program.h"

namespace superneurons {

/// Version of all JSON written here.
inline constexpr std::string_view kReportVersion = "0.1";

/// A cell of a comparison without a plan.
struct Refusal {
  std::string policy;
  std::string trace;
  std::string trace_hash;
  Bytes budget_bytes{};
  Bytes smallest_budget_bytes{};  // at which this policy fits; 0 where that is unknown
  std::string floor_op;           // sets it
  std::string reason;             // one sentence
  bool failed = false;            // the policy, a command, gave no lawful plan at all
};

/// What limits every policy, or what a policy takes without limit.
struct BoundRow {
  std::string trace;
  std::string trace_hash;
  std::string name;       // "keep_all", "largest_working_set", "time"
  Bytes bytes{};          // 0: says nothing of memory
  Nanoseconds step_ns{};  // 0: says nothing of time
  std::string note;       // one sentence
};

/// Columns of equal width, two blanks apart: the first `text_columns` flush left, the others flush
/// right.
std::string align(const std::vector<std::vector<std::string>>& rows, std::size_t text_columns = 2);

/// One outcome in full: memory by role, traffic, where the time goes.
std::string format_outcome(const Outcome& outcome);
/// The outcome of a replay: predicted beside measured.
std::string format_replay(const Outcome& outcome);

/// {"format":"superneurons-result","version":"0.1","options":{...},"outcomes":[...]}; an outcome is
///   policy, trace, trace_hash, allocator                                  strings
///   budget_bytes, live_peak_bytes, placed_peak_bytes, host_bytes          integers
///   allocated_peak_bytes, reserved_peak_bytes      what PyTorch's allocator would say; only where
///                      the allocator caches
///   scope_peak_bytes   {role: integer}, the peak of each role on its own
///   step_ns, bound_ns, compute_ns, offload_bytes, prefetch_bytes, recompute_runs, recompute_ns
///   cache              {hits, misses, evictions, clean_evictions}: of reads of tensors that are
///   not
///                      at home on the device; see simulator/cache_stats.h
///   stall_ns           {cause: integer}; step_ns = compute_ns + their sum
///   slower_choices, slower_choices_ns      ops not at their fastest choice, and what that costs of
///                      compute_ns; absent where there are none
///   workspaces         [{op, choice, fastest, assigned_bytes, wanted_bytes, runs, ns, lost_ns}],
///                      with simulate --workspaces
///   measured_step_ns, measured_peak_bytes, outside_bytes                  replay only
///   used_peak_bytes    what measured_peak_bytes should be: the end of the highest range handed
///                      out, below placed_peak_bytes where an allocator caches; replay only
///   equal              replay only; absent where nothing was compared
///   scaled_from        device that the ops were measured on               where times are scaled
///   time_refused       why step_ns does not predict measured_step_ns      replay, where it does
///   not
/// `options` is what the caller was asked for, name to text. A comparison adds "infeasible" and
/// "bounds": lists of objects with the fields of Refusal and BoundRow, those that are 0, "" or
/// false left out.
std::string format_json(std::span<const Outcome> outcomes,
                        const std::map<std::string, std::string>& options = {},
                        std::span<const Refusal> refusals = {},
                        std::span<const BoundRow> bounds = {});

/// What stands in place of outcomes where something does not fit: "outcomes" is empty, "error" says
/// why, and, where known, "floor_bytes" is the smallest budget that does, "short_bytes" what was
/// missing where it failed and "op" where that was, or what sets the floor.
std::string format_refusal_json(const Error& error,
                                const std::map<std::string, std::string>& options = {});

/// Chrome trace-event JSON of a timeline with spans, for Perfetto or chrome://tracing: streams are
/// threads; counters show bytes resident by role when each run starts; a span's arguments name its
/// plan step, what it waited for, the time its stream idled before it and the time it was slowed.
std::string format_chrome_trace(const Trace& trace, const Plan& plan, const Program& program,
                                const Timeline& timeline);

/// Bytes resident over plan steps, in columns of equal length:
/// {"format":"superneurons-memory","version","trace","trace_hash","policy","allocator",
///  "budget_bytes","kind":[...],"name":[op or tensor],"total":[...],"workspace":[...],
///  "by_role":{role:[...]}}
std::string format_memory_json(const Trace& trace, const Plan& plan);

/// Memory over layer steps, as papers print it (memory/layer_steps.h): activations and their
/// gradients at each layer's own turn.
/// {"format":"superneurons-layer-steps","version","trace","trace_hash","policy","scope":[role],
///  "scope_peak_bytes","steps":[{"layer","phase","bytes","tensors","peak_bytes"}]}
std::string format_layer_steps_json(const Trace& trace, const Plan& plan);

}  // namespace superneurons
