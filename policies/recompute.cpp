// Recompute (SuperNeurons, PPoPP 2018, section 3.4, speed-centric): outputs of cheap layers (POOL,
// ACT, LRN, BN, dropout) are dropped after their last forward use. At the first backward use the
// segment from the checkpoint up to what is needed runs again, once, and its results stay until
// their last use. Checkpoints are the layers that the paper keeps: convolution, FC, fork, join,
// concat, softmax. Ops of other programs have no such names: there an op is cheap if it takes about
// as long as moving its operands through memory.
#include <algorithm>
#include <array>

#include "policies/options.h"
#include "policies/passes.h"
#include "policies/rebuild.h"

namespace superneurons {
namespace {

constexpr std::array<std::string_view, 6> kCheapKinds = {"ReluForward",      "MaxPoolForward",
                                                         "AvgPoolForward",   "LrnForward",
                                                         "BatchNormForward", "DropoutForward"};
constexpr std::array<std::string_view, 7> kCheckpointKinds = {"Conv2dForward",
                                                              "LinearForward",
                                                              "AddForward",
                                                              "Accumulate",
                                                              "ConcatForward",
                                                              "Copy",
                                                              "SoftmaxCrossEntropyForward"};

template <std::size_t N>
bool among(const std::array<std::string_view, N>& kinds, std::string_view kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

/// Bound by memory rather than by arithmetic, with room for a launch and an imperfect kernel.
bool moves_rather_than_computes(const PolicyContext& context, const Op& op) {
  if (context.profile.memory_bytes_per_ns <= 0) return false;
  Bytes moved{};
  for (const Access& read : op.reads) moved += read.length;
  for (const Access& write : op.writes) moved += write.length;
  const double bound = static_cast<double>(moved.count) / context.profile.memory_bytes_per_ns;
  return static_cast<double>(op.choices[op.recorded].ns.count) <= 4 * bound + 10'000;
}

std::vector<bool> cheap_ops(const PolicyContext& context) {
  std::vector<bool> cheap;
  for (const Op& op : context.trace.ops) {
    const bool forward = op.phase == Phase::forward || op.phase == Phase::other;
    cheap.push_back(op.rerunnable && forward &&
                    (among(kCheapKinds, op.kind) || (!among(kCheckpointKinds, op.kind) &&
                                                     moves_rather_than_computes(context, op))));
  }
  return cheap;
}

/// What to drop, the best first: most bytes x time for the least time to make it again.
std::vector<Idle> droppable(const PolicyContext& context, const Plan& plan,
                            const std::vector<bool>& cheap, Bytes least) {
  const std::vector<Nanoseconds> clock = clock_of(context.trace, plan);
  const std::vector<std::uint32_t> runs = runs_before(plan);
  std::vector<Idle> drops = idle_into_backward(context, plan);
  std::erase_if(drops, [&](const Idle& idle) {
    if (runs[idle.after] == runs[idle.before + 1]) return true;  // nothing runs without it
    // Two readers in forward make it a fork, where a segment ends.
    return context.trace[idle.tensor].bytes < least || idle.readers > 1 ||
           !cheap[plan.steps[idle.made].subject];
  });
  const auto worth = [&](const Idle& idle) {
    const double time = static_cast<double>((clock[idle.after] - clock[idle.before]).count) + 1;
    const double cost = static_cast<double>((clock[idle.made + 1] - clock[idle.made]).count) + 1;
    return static_cast<double>(context.trace[idle.tensor].bytes.count) * time / cost;
  };
  std::stable_sort(drops.begin(), drops.end(),
                   [&](const Idle& a, const Idle& b) { return worth(a) > worth(b); });
  return drops;
}

}  // namespace

Result<Plan> recompute(const PolicyContext& context, const Plan& incoming) {
  const Result<std::string> need = one_of(context, "recompute", "need", {"budget", "all"});
  if (!need) return need.error();
  const Result<Bytes> least = bytes_of(context, "recompute", "min");
  if (!least) return least.error();
  if (*need == "budget" && fits(context, incoming)) return incoming;
  const std::vector<bool> cheap = cheap_ops(context);
  const std::vector<Idle> drops = droppable(context, incoming, cheap, *least);
  const auto build = [&](std::size_t count) {
    return rebuild_later(context, incoming, std::span(drops).first(count), cheap);
  };
  Plan all = build(drops.size());
  if (*need == "all") return all;
  if (!fits(context, all)) return smaller_of(context, std::move(all), incoming);
  return build(fewest_that_fit(context, drops.size(), build));
}

}  // namespace superneurons
