#include "tracer/activity_windows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tracer/training_window.h"

namespace superneurons {
namespace {

constexpr std::string_view kRange = "range:";

Error usage(std::string message) { return {ErrorCode::bad_usage, std::move(message)}; }

/// Those that do the same as most of them do, in order; of two such groups the later one.
std::vector<RangeSpan> most_alike(const ProgramActivity& program,
                                  const std::vector<RangeSpan>& spans) {
  std::map<std::vector<std::uint64_t>, std::vector<RangeSpan>> groups;
  for (const RangeSpan& span : spans) {
    std::uint64_t hash = 0;
    for (std::uint32_t i = span.first; i < span.last; ++i)
      hash = (hash ^ program.tokens[i]) * 0xff51afd7ed558ccdULL + 1;
    groups[{span.last - span.first, hash}].push_back(span);
  }
  std::vector<RangeSpan> best;
  for (auto& [key, group] : groups)
    if (group.size() > best.size() ||
        (group.size() == best.size() && group.back().first > best.back().first))
      best = group;
  return best;
}

std::string times(std::size_t seen, std::size_t alike) {
  if (seen == 1) return "seen once";
  if (seen == alike) return fmt::format("seen {} times", seen);
  return fmt::format("seen {} times, of which {} do the same and count", seen, alike);
}

Result<Windows> range_windows(const ProgramActivity& program, const std::string& name) {
  if (program.spans.empty()) {
    if (program.outermost.empty())
      return usage(
          fmt::format("no range \"{}\": the program marks no NVTX ranges (would be "
                      "--window pattern or whole)",
                      name));
    return usage(fmt::format("no range \"{}\" with work on a device (outermost ranges: {})", name,
                             fmt::join(program.outermost, ", ")));
  }
  Windows windows{most_alike(program, program.spans), name, ""};
  windows.told = fmt::format("the training step is the range \"{}\", {}", name,
                             times(program.spans.size(), windows.alike.size()));
  return windows;
}

/// Bytes of the driver's allocations that live on from before to after each place in [first, last]
/// where a window may begin. One that is made right before its first launch belongs to the window,
/// and one that is freed there to the window before.
std::vector<double> live_bytes(const ProgramActivity& program, std::uint32_t first,
                               std::uint32_t last) {
  std::vector<double> live(last - first + 2);  // whole numbers, as long as they are reasonable
  for (const DriverAllocation& one : program.allocations) {
    const std::uint32_t from = std::max(one.born + 1, first);
    if (from > last || one.freed <= from) continue;
    const auto bytes = static_cast<double>(one.bytes);
    live[from - first] += bytes;
    if (one.freed <= last) live[one.freed - first] -= bytes;
  }
  for (std::size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
  return live;
}

/// Kernels of a program, without copies: what a program copies now and then (a loss to print) must
/// not break a pattern.
struct Kernels {
  std::vector<std::uint32_t> tokens;
  std::vector<std::uint32_t> launches;  // of each kernel

  /// The launch before which a window ends and another begins, at a kernel: what was copied to the
  /// host since the kernel before it belongs to the window before, all else to the one that begins.
  Result<std::uint32_t> boundary(const ProgramActivity& program, std::size_t kernel) const {
    if (kernel == 0) return 0;
    std::uint32_t at = launches[kernel - 1] + 1;
    for (; at < program.tokens.size() && !program.kernels[at]; ++at) {
      const auto rows = program.launches.read(at, 1);
      if (!rows) return rows.error();
      if (program.names[rows->front().name] != "memcpy DtoH") break;
    }
    return at;
  }
};

Kernels kernels_of(const ProgramActivity& program) {
  Kernels kernels;
  for (std::uint32_t i = 0; i < program.tokens.size(); ++i) {
    if (!program.kernels[i]) continue;
    kernels.tokens.push_back(program.tokens[i]);
    kernels.launches.push_back(i);
  }
  return kernels;
}

/// At which of the pattern's kernels a training step starts best.
Result<std::size_t> best_start(const ProgramActivity& program, const Kernels& kernels,
                               const Pattern& pattern) {
  if (pattern.period > kMostInOneTrace) return 0;  // it will be refused
  const std::size_t base = pattern.first + pattern.period * (pattern.repetitions() / 2);
  const std::uint32_t first = kernels.launches[base == 0 ? 0 : base - 1];
  const std::uint32_t last = kernels.launches[base + pattern.period - 1];
  const std::vector<double> live = live_bytes(program, first, last);
  const auto rows = program.launches.read(first, last - first + 1);
  if (!rows) return rows.error();
  std::size_t best = 0;
  std::optional<std::pair<double, std::int64_t>> best_merit;
  for (std::size_t i = 0; i < pattern.period; ++i) {
    if (base + i == 0) continue;
    std::uint32_t at = kernels.launches[base + i - 1] + 1;
    while (!program.kernels[at] && program.names[(*rows)[at - first].name] == "memcpy DtoH") ++at;
    const std::int64_t pause = (*rows)[at - first].issued - (*rows)[at - first - 1].issued;
    const std::pair merit{-live[at - first], pause};
    if (best_merit && merit <= *best_merit) continue;
    best = i;
    best_merit = merit;
  }
  return best;
}

Result<Windows> pattern_windows(const ProgramActivity& program, const Kernels& kernels,
                                const Pattern& pattern) {
  const auto start = best_start(program, kernels, pattern);
  if (!start) return start.error();
  std::vector<RangeSpan> spans;
  const std::size_t end = pattern.first + pattern.length;
  for (std::size_t at = pattern.first + *start; at + pattern.period <= end; at += pattern.period) {
    const auto first = kernels.boundary(program, at);
    const auto last = kernels.boundary(program, at + pattern.period);
    if (!first) return first.error();
    if (!last) return last.error();
    spans.push_back({*first, *last});
  }
  Windows windows{most_alike(program, spans), "", ""};
  windows.told = fmt::format("the training step is a pattern of {} kernels, {}", pattern.period,
                             times(spans.size(), windows.alike.size()));
  return windows;
}

Windows whole(const ProgramActivity& program, std::string told) {
  return {{{0, static_cast<std::uint32_t>(program.tokens.size())}}, "", std::move(told)};
}

}  // namespace

std::string range_of(const std::string& window) {
  return window.rfind(kRange, 0) == 0 ? window.substr(kRange.size()) : "";
}

Result<Windows> find_windows(const ProgramActivity& program, const std::string& window) {
  if (const std::string name = range_of(window); !name.empty()) return range_windows(program, name);
  if (window == "whole") return whole(program, "the whole run is taken as one training step");
  const Kernels kernels = kernels_of(program);
  if (const auto pattern = find_pattern(kernels.tokens))
    return pattern_windows(program, kernels, *pattern);
  if (window == "pattern")
    return usage(
        "no pattern of kernels repeats three times over half of the run (would be "
        "--window range:NAME or whole)");
  return whole(program,
               "no pattern of kernels repeats, so that the whole run is taken as one training "
               "step (--window range:NAME takes the instances of an NVTX range)");
}

}  // namespace superneurons
