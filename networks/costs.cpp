#include "networks/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace superneurons {
namespace {

/// Numbers that are computed with, and change nothing in how long that takes.
bool is_constant(std::string_view kind, std::string_view attribute) {
  if (kind == "SgdUpdate") return attribute != "count";
  if (kind.starts_with("BatchNorm")) return attribute == "epsilon" || attribute == "momentum";
  if (kind.starts_with("Dropout")) return attribute == "rate";
  if (kind.starts_with("Lrn"))
    return attribute == "alpha" || attribute == "beta" || attribute == "k";
  return false;
}

/// Whether TF32 makes a difference.
bool is_product(std::string_view kind) {
  return (kind.starts_with("Conv2d") || kind.starts_with("Linear")) &&
         !kind.ends_with("BackwardBias");
}

/// Position of the tensor among what the op writes, or none.
std::optional<std::uint32_t> place_in_writes(const Op& op, TensorId tensor) {
  for (std::uint32_t i = 0; i < op.writes.size(); ++i)
    if (op.writes[i].tensor == tensor) return i;
  return std::nullopt;
}

Nanoseconds median(std::vector<Nanoseconds> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// One choice of all ops with one signature.
struct Found {
  Choice choice;                     // without omits: tensors of another trace
  std::vector<std::uint32_t> omits;  // as places among the writes
  std::vector<Nanoseconds> times{};
  std::size_t recorded = 0;  // by how many ops
};

bool same(const Found& found, const Choice& choice, const std::vector<std::uint32_t>& omits) {
  return found.choice.algorithm == choice.algorithm && found.choice.math == choice.math &&
         found.choice.workspace == choice.workspace &&
         found.choice.deterministic == choice.deterministic && found.omits == omits;
}

/// All that was measured of one signature.
struct Group {
  std::vector<const Op*> ops;
  std::vector<Found> choices{};
  std::uint32_t recorded = 0;
  Nanoseconds host_ns{};
  const Op* typical = nullptr;  // of those that took the recorded choice, the nearest to its time
};

Found& find_choice(Group& group, const Op& op, const Choice& choice) {
  std::vector<std::uint32_t> omits;
  for (const TensorId tensor : choice.omits)
    if (const auto place = place_in_writes(op, tensor)) omits.push_back(*place);
  for (Found& found : group.choices)
    if (same(found, choice, omits)) return found;
  Found found{.choice = choice, .omits = std::move(omits)};
  found.choice.omits.clear();
  group.choices.push_back(std::move(found));
  return group.choices.back();
}

bool took(const Group& group, const Op& op) {
  const Choice& recorded = op.choices[op.recorded];
  const Choice& wanted = group.choices[group.recorded].choice;
  return recorded.algorithm == wanted.algorithm && recorded.math == wanted.math;
}

/// Fills everything but the ops.
void summarise(Group& group) {
  std::vector<Nanoseconds> host;
  for (const Op* op : group.ops) {
    host.push_back(op->host_ns);
    for (std::uint32_t i = 0; i < op->choices.size(); ++i) {
      Found& found = find_choice(group, *op, op->choices[i]);
      found.times.push_back(op->choices[i].ns);
      if (i == op->recorded) ++found.recorded;
    }
  }
  group.host_ns = median(std::move(host));
  for (Found& found : group.choices) found.choice.ns = median(found.times);
  for (std::uint32_t i = 1; i < group.choices.size(); ++i) {
    const Found& best = group.choices[group.recorded];
    const Found& found = group.choices[i];
    if (found.recorded > best.recorded ||
        (found.recorded == best.recorded && found.choice.ns < best.choice.ns))
      group.recorded = i;
  }
  const std::int64_t wanted = group.choices[group.recorded].choice.ns.count;
  const auto distance = [wanted](const Op* op) {
    return std::abs(op->choices[op->recorded].ns.count - wanted);
  };
  for (const Op* op : group.ops)
    if (took(group, *op) && (!group.typical || distance(op) < distance(group.typical)))
      group.typical = op;
}

void give(const Group& group, Op& op) {
  op.choices.clear();
  for (const Found& found : group.choices) {
    Choice choice = found.choice;
    for (const std::uint32_t place : found.omits) choice.omits.push_back(op.writes[place].tensor);
    op.choices.push_back(std::move(choice));
  }
  op.recorded = group.recorded;
  op.host_ns = group.host_ns;
  op.kernels = group.typical ? group.typical->kernels : std::vector<Kernel>{};
}

/// Why nothing can be copied from these traces, or "".
std::string problem_of(std::span<const Trace> recorded) {
  for (const Trace& source : recorded) {
    if (source.device.empty() || source.capability(Fact::durations) == Capability::none)
      return fmt::format(
          "{} was measured on no device ({}; would be one that `superneurons trace` "
          "recorded)",
          source.name, source.origin);
    if (source.capability(Fact::native) == Capability::none)
      return fmt::format("{} is not of a built-in network, so its ops are not comparable",
                         source.name);
    if (source.device != recorded.front().device)
      return fmt::format("{} was measured on {} and {} on {}: costs of one device only",
                         recorded.front().name, recorded.front().device, source.name,
                         source.device);
  }
  return {};
}

void set_capabilities(Trace& trace, std::span<const Trace> recorded, bool all) {
  for (const Fact fact :
       {Fact::durations, Fact::workspaces, Fact::choices, Fact::kernels, Fact::host_times}) {
    Capability least = all ? Capability::exact : Capability::inferred;
    for (const Trace& source : recorded) least = std::min(least, source.capability(fact));
    trace.capabilities[static_cast<std::size_t>(fact)] = least;
  }
}

std::string origin_of(const Trace& trace, std::span<const Trace> recorded, CopiedCosts copied) {
  std::string names;
  for (const Trace& source : recorded) names += (names.empty() ? "" : ", ") + source.name;
  std::string origin = fmt::format("costs of {} of {} ops as recorded on {} in {}", copied.matched,
                                   copied.of, recorded.front().device, names);
  if (copied.matched < copied.of) origin += "; of the others: " + trace.origin;
  return origin;
}

}  // namespace

std::string cost_signature(const Trace& trace, const Op& op) {
  std::string text = op.kind;
  for (const auto& [name, value] : op.attributes)
    if (!is_constant(op.kind, name)) text += fmt::format(" {}={}", name, value);
  // A trace in tf32 may have ops whose fastest choice is fp32: what counts is what was allowed.
  if (is_product(op.kind)) text += " " + trace.math;
  for (const Access& access : op.reads) text += fmt::format(" r{}", access.length.count);
  for (const Access& access : op.writes) {
    text += fmt::format(" w{}", access.length.count);
    for (std::size_t i = 0; i < op.reads.size(); ++i)
      if (op.reads[i].tensor == access.tensor) text += fmt::format("@{}", i);
  }
  return text;
}

Result<CopiedCosts> copy_costs(Trace& trace, std::span<const Trace> recorded) {
  CopiedCosts copied{.of = trace.ops.size()};
  if (recorded.empty()) return copied;
  if (std::string problem = problem_of(recorded); !problem.empty())
    return Error{ErrorCode::bad_input, std::move(problem)};
  std::unordered_map<std::string, Group> groups;
  for (const Trace& source : recorded)
    for (const Op& op : source.ops) groups[cost_signature(source, op)].ops.push_back(&op);
  for (Op& op : trace.ops) {
    const auto found = groups.find(cost_signature(trace, op));
    if (found == groups.end()) continue;
    Group& group = found->second;
    if (group.choices.empty()) summarise(group);
    give(group, op);
    ++copied.matched;
  }
  if (copied.matched == 0)
    return Error{ErrorCode::bad_input,
                 fmt::format("no op of {} is like one of {} (same batch, math and lowering?)",
                             trace.name, recorded.front().name)};
  trace.origin = origin_of(trace, recorded, copied);
  trace.device = recorded.front().device;
  set_capabilities(trace, recorded, copied.matched == copied.of);
  return copied;
}

}  // namespace superneurons
