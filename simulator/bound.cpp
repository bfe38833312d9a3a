// A proven lower bound of the training step under a budget.
//
// Consider any op k. Whatever the plan, at the first run of k all ops that k needs (its ancestors)
// have run and none that needs k (its descendants) has. A value made by an ancestor, or carried in,
// that k or a descendant reads is then on the device, or on the host and still to be prefetched, or
// lost and its maker still to be rerun. The operands of k are on the device. So of the other such
// values, what the budget has no room for costs prefetch bytes (at most the host budget) or reruns:
//
//     step >= min over r of max( (excess - r) / bandwidth, compute + cheapest reruns for r bytes )
//
// for each k, where reruns are bought by the byte, cheapest first (a fractional knapsack, hence a
// lower bound). Streams are FIFO and the same every step, so no step is shorter than the load of
// any one of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "ir/dataflow.h"
#include "memory/placement.h"
#include "simulator/outcome.h"
#include "simulator/program_time.h"

namespace superneurons {
namespace {

struct Bound {
  const Trace& trace;
  const Dataflow& flow;
  Budget budget;
  double bytes_per_ns = 0;      // best rate of prefetches; 0: unknown
  std::vector<double> op_ns{};  // least time of a run of each op that fits, gap included
  double compute = 0;           // their sum
};

/// Fastest choice that fits; where none does, the plan is not feasible anyway.
template <class TimeOf>
double least_time(const Trace& trace, const Op& op, Bytes device, const TimeOf& time_of) {
  constexpr auto kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t fitting = kNone, any = kNone;
  for (std::uint32_t i = 0; i < op.choices.size(); ++i) {
    const std::int64_t time = time_of(i).count;
    any = std::min(any, time);
    if (device.count <= 0 || working_set(trace, op, op.choices[i]) <= device)
      fitting = std::min(fitting, time);
  }
  return static_cast<double>(fitting == kNone ? any : fitting);
}

double best_rate(const TransferCurve& curve) {
  double rate = std::max(curve.bytes_per_ns, 0.0);
  for (const auto& point : curve.points) {
    if (point.ns.count <= 0 && point.bytes.count > 0) return 0;
    if (point.ns.count > 0)
      rate = std::max(rate,
                      static_cast<double>(point.bytes.count) / static_cast<double>(point.ns.count));
  }
  return rate;
}

/// Ops that k needs, itself included; ops that need k, itself included. Data flow only: what is
/// left out makes the bound lower, never wrong.
std::vector<bool> ancestors(const Bound& bound, std::uint32_t k) {
  std::vector<bool> result(bound.trace.ops.size(), false);
  result[k] = true;
  for (std::uint32_t i = k + 1; i-- > 0;) {
    if (!result[i]) continue;
    for (const Value& need : bound.flow.ops[i].needs)
      if (need.version > 0) result[bound.flow[need.tensor].makers[need.version - 1].index] = true;
  }
  return result;
}

std::vector<bool> descendants(const Bound& bound, std::uint32_t k) {
  std::vector<bool> result(bound.trace.ops.size(), false);
  result[k] = true;
  for (std::size_t i = k + 1; i < result.size(); ++i)
    for (const Value& need : bound.flow.ops[i].needs)
      if (need.version > 0 && result[bound.flow[need.tensor].makers[need.version - 1].index])
        result[i] = true;
  return result;
}

/// Values by the op whose rerun would bring them back.
struct Rerun {
  double ns = 0;
  double bytes = 0;
};

/// The bound from op k alone.
double bound_at(const Bound& bound, std::uint32_t k) {
  const Op& op = bound.trace.ops[k];
  std::vector<bool> counted(bound.trace.tensors.size(), false);
  for (const Access& access : op.reads) counted[access.tensor.index] = true;
  for (const Access& access : op.writes) counted[access.tensor.index] = true;
  std::int64_t operands = std::numeric_limits<std::int64_t>::max();
  for (const Choice& choice : op.choices)
    operands = std::min(operands, working_set(bound.trace, op, choice).count);

  const std::vector<bool> before = ancestors(bound, k), after = descendants(bound, k);
  std::vector<Rerun> reruns(bound.trace.ops.size());
  double waiting = 0;
  for (std::size_t i = k; i < after.size(); ++i) {
    if (!after[i]) continue;
    for (const Value& need : bound.flow.ops[i].needs) {
      const TensorFlow& tensor = bound.flow[need.tensor];
      if (counted[need.tensor.index]) continue;
      if (need.version == 0 ? !tensor.alive_at_start
                            : !before[tensor.makers[need.version - 1].index])
        continue;
      counted[need.tensor.index] = true;
      const auto bytes = static_cast<double>(bound.trace[need.tensor].bytes.count);
      waiting += bytes;
      if (need.version == 0) continue;
      const OpId maker = tensor.makers[need.version - 1];
      if (bound.trace[maker].rerunnable) reruns[maker.index].bytes += bytes;
    }
  }
  double excess = waiting - static_cast<double>(bound.budget.device.count - operands);
  if (excess <= 0) return bound.compute;

  std::vector<Rerun> offers;
  for (std::size_t i = 0; i < reruns.size(); ++i)
    if (reruns[i].bytes > 0) offers.push_back({bound.op_ns[i], reruns[i].bytes});
  std::sort(offers.begin(), offers.end(),
            [](const Rerun& a, const Rerun& b) { return a.ns * b.bytes < b.ns * a.bytes; });
  double compute = bound.compute;
  const auto host = static_cast<double>(std::max<std::int64_t>(bound.budget.host.count, 0));
  for (const Rerun& offer : offers) {
    const double price = offer.ns / offer.bytes;
    // As many bytes of this offer as are needed for the host to hold the rest, or for the two
    // sides to balance: (excess - r) / bandwidth = compute + price * r.
    double bytes = std::max(excess - host, 0.0);
    if (bound.bytes_per_ns > 0)
      bytes = std::max(bytes,
                       (excess - compute * bound.bytes_per_ns) / (1 + price * bound.bytes_per_ns));
    bytes = std::clamp(bytes, 0.0, offer.bytes);
    excess -= bytes;
    compute += price * bytes;
    if (bytes < offer.bytes) break;
  }
  return bound.bytes_per_ns > 0 ? std::max(excess / bound.bytes_per_ns, compute) : compute;
}

/// Ops worth asking: where most bytes live in recorded order, in each quarter of the step.
std::vector<std::uint32_t> candidates(const Bound& bound) {
  const std::size_t ops = bound.trace.ops.size();
  std::vector<double> change(ops + 1, 0);
  for (std::size_t i = 0; i < bound.flow.tensors.size(); ++i) {
    const TensorFlow& tensor = bound.flow.tensors[i];
    if (tensor.users.empty()) continue;
    const auto bytes = static_cast<double>(bound.trace.tensors[i].bytes.count);
    change[tensor.alive_at_start ? 0 : tensor.users.front().index] += bytes;
    change[tensor.users.back().index + 1] -= bytes;
  }
  constexpr std::size_t kCandidates = 4;
  std::vector<std::uint32_t> result(kCandidates, 0);
  std::array<double, kCandidates> best{};
  double live = 0;
  for (std::size_t i = 0; i < ops; ++i) {
    live += change[i];
    const std::size_t quarter = i * best.size() / ops;
    if (live <= best[quarter]) continue;
    best[quarter] = live;
    result[quarter] = static_cast<std::uint32_t>(i);
  }
  return result;
}

}  // namespace

Nanoseconds time_bound(const Trace& trace, const DeviceProfile& profile, Budget budget,
                       Clock clock) {
  if (trace.ops.empty()) return {};
  const Dataflow flow = analyze(trace);
  Bound bound{trace, flow, budget, best_rate(profile.prefetch), {}, 0};
  const bool of_program = clock == Clock::program;
  const auto gap = static_cast<double>(std::max<std::int64_t>(profile.gap_ns.count, 0));
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    const bool joined = of_program && is_joined(trace, i);
    const auto time_of = [&](std::uint32_t choice) {
      return of_program ? program_time(trace.ops[i], choice, profile)
                        : trace.ops[i].choices[choice].ns;
    };
    bound.op_ns.push_back(least_time(trace, trace.ops[i], budget.device, time_of) +
                          (joined ? 0 : gap));
    bound.compute += bound.op_ns.back();
  }
  double best = bound.compute;
  if (budget.device.count > 0)
    for (const std::uint32_t op : candidates(bound)) best = std::max(best, bound_at(bound, op));
  return {
      static_cast<std::int64_t>(std::floor(std::min(best, static_cast<double>(kLatest.count))))};
}

}  // namespace superneurons
