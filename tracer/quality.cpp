#include "tracer/quality.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ir/files.h"

namespace superneurons {
namespace {

constexpr std::int64_t kPyTorchBlock = 512;  // CUDACachingAllocator's kMinBlockSize

std::int64_t given_out(const Trace& trace, Bytes wanted) {
  if (trace.lowering != "pytorch") return wanted.count;
  return (wanted.count + kPyTorchBlock - 1) / kPyTorchBlock * kPyTorchBlock;
}

/// The first op at which each tensor is there; the number of ops for one that never is.
std::vector<std::size_t> births(const Trace& trace) {
  std::vector<std::size_t> born(trace.tensors.size(), trace.ops.size());
  for (const Carry& carry : trace.carry) born[carry.start.index] = 0;
  for (std::size_t i = 0; i < trace.ops.size(); ++i)
    for (const auto* accesses : {&trace.ops[i].reads, &trace.ops[i].writes})
      for (const Access& access : *accesses)
        born[access.tensor.index] = std::min(born[access.tensor.index], i);
  return born;
}

std::string percent(double share) { return fmt::format("{:.2f} %", 100 * share); }

}  // namespace

Bytes rebuilt_peak(const Trace& trace, std::string* op) {
  const std::vector<std::size_t> born = births(trace);
  std::vector<std::int64_t> change(trace.ops.size() + 1);  // bytes that come before each op
  for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
    const Tensor& tensor = trace.tensors[i];
    const std::size_t freed = tensor.freed_before ? tensor.freed_before->index : trace.ops.size();
    if (born[i] >= freed) continue;
    change[born[i]] += given_out(trace, tensor.bytes);
    change[freed] -= given_out(trace, tensor.bytes);
  }
  std::int64_t live = 0, peak = 0;
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    live += change[i];
    const Op& one = trace.ops[i];
    const std::int64_t now = live + given_out(trace, one.choices[one.recorded].workspace);
    if (now <= peak) continue;
    peak = now;
    if (op) *op = one.name;
  }
  return {peak};
}

Quality quality_of(const Trace& trace) {
  Quality quality;
  quality.rebuilt_peak = rebuilt_peak(trace, &quality.peak_op);
  const auto doubt = [&](std::string sentence) { quality.doubts.push_back(std::move(sentence)); };
  if (trace.dropped_records > 0)
    doubt(fmt::format("the tracer lost {} records: times and kernels of ops may be short",
                      trace.dropped_records));
  const auto owned = static_cast<double>(trace.owned_ns.count);
  const auto orphaned = static_cast<double>(trace.orphan_ns.count);
  if (owned + orphaned > 0) {
    quality.owned = owned / (owned + orphaned);
    if (*quality.owned < kLeastOwned)
      doubt(
          fmt::format("ops own {} of the device time (would be at least {}): {} kernels and "
                      "copies, {}, belong to none",
                      percent(*quality.owned), percent(kLeastOwned), trace.orphans,
                      format_time(trace.orphan_ns)));
  }
  const auto slowdown = static_cast<double>(trace.step_ns_traced.count) /
                        static_cast<double>(trace.step_ns_untraced.count);
  if (trace.step_ns_traced > 0_ns && trace.step_ns_untraced > 0_ns && slowdown < kLeastSlowdown)
    doubt(
        fmt::format("the untraced training steps took longer than the traced ones, {} to {}: they "
                    "were probably disturbed (would be traced anew on an idle machine)",
                    format_time(trace.step_ns_untraced), format_time(trace.step_ns_traced)));
  if (trace.allocated_peak > 0_B) {
    quality.peak_error = static_cast<double>(quality.rebuilt_peak.count) /
                             static_cast<double>(trace.allocated_peak.count) -
                         1;
    if (std::abs(*quality.peak_error) > kMostPeakError)
      doubt(
          fmt::format("the rebuilt peak of {} is {} {} the {} of the program's allocator (would "
                      "be within {}): budgets on this trace are off by as much",
                      format_bytes(quality.rebuilt_peak), percent(std::abs(*quality.peak_error)),
                      *quality.peak_error > 0 ? "above" : "below",
                      format_bytes(trace.allocated_peak), percent(kMostPeakError)));
  }
  return quality;
}

}  // namespace superneurons
