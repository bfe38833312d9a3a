// Recompute (SuperNeurons, PPoPP 2018, section 3.4): outputs of cheap layers (POOL, ACT, LRN, BN,
// dropout) are dropped after their last forward use. When backward needs one, its segment runs
// again from the checkpoint up to it: once, and all stays until its last use (speed-centric, O(N)
// reruns), or for every backward layer anew, so that only what that layer needs stays
// (memory-centric, O(N^2)), or, cost-aware, once where the whole segment takes no more than the
// largest layer, l_peak, which no plan of a layer at a time goes below. Checkpoints are the layers
// that the paper keeps: convolution, FC, fork, join, concat, softmax. Other programs have their
// memory elsewhere (sums and activations in place, outputs of norms and of convolutions both kept
// for backward), so that only time decides there: beside pooling, activations, norms and dropout
// (policies/op_families.h) an op is cheap if it takes about as long as moving its operands through
// memory, as small convolutions and thin matrix products do.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <span>

#include "ir/files.h"
#include "policies/op_families.h"
#include "policies/options.h"
#include "policies/passes.h"
#include "policies/rebuild.h"
#include "policies/segments.h"

namespace superneurons {
namespace {

/// Never made again in our networks: what computes, and what the paper keeps besides.
bool is_checkpoint(OpFamily family, std::string_view kind) {
  return !is_foreign(kind) && family != OpFamily::other && !is_cheap(family);
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
    const OpFamily family = family_of(op.kind);
    cheap.push_back(op.rerunnable && forward &&
                    (is_cheap(family) ||
                     (!is_checkpoint(family, op.kind) && moves_rather_than_computes(context, op))));
  }
  return cheap;
}

struct Options {
  std::string strategy;
  bool need_all = false;
  bool drop_saved = false;
  LayerPeak layer_peak = LayerPeak::held;
  Bytes least{};
};

Result<Options> parse(const PolicyContext& context) {
  const auto choice = [&](const char* option, std::initializer_list<std::string_view> values) {
    return one_of(context, "recompute", option, values);
  };
  const Result<std::string> strategy = choice("strategy", {"cost_aware", "speed", "memory"});
  const Result<std::string> need = choice("need", {"budget", "all"});
  const Result<std::string> saved = choice("saved", {"drop", "keep"});
  const Result<std::string> peak = choice("l_peak", {"held", "distinct", "aliased"});
  const Result<Bytes> least = bytes_of(context, "recompute", "min");
  for (const Result<std::string>* result : {&strategy, &need, &saved, &peak})
    if (!*result) return result->error();
  if (!least) return least.error();
  return Options{*strategy, *need == "all", *saved == "drop",
                 *peak == "held"       ? LayerPeak::held
                 : *peak == "distinct" ? LayerPeak::distinct
                                       : LayerPeak::aliased,
                 *least};
}

/// Time of the ops that made the versions below, where the value was then changed in place: they
/// run again as well.
Nanoseconds time_below(const PolicyContext& context, const Idle& idle) {
  const std::vector<OpId>& makers = context.flow[idle.tensor].makers;
  Nanoseconds time{};
  for (Version version = idle.version; version > 1; --version) {
    const std::span<const Value> needs = context.flow[makers[version - 1]].rerun_needs;
    const bool in_place = std::any_of(needs.begin(), needs.end(), [&](const Value& need) {
      return need.tensor == idle.tensor && need.version + 1 == version;
    });
    if (!in_place) break;
    const Op& below = context.trace[makers[version - 2]];
    time += below.choices[below.recorded].ns;
  }
  return time;
}

/// What to drop, the best first: most bytes x time for the least time to make it again.
std::vector<Idle> droppable(const PolicyContext& context, const Plan& plan,
                            const std::vector<bool>& cheap, const Options& options) {
  const std::vector<Nanoseconds> clock = clock_of(context, plan);
  const std::vector<std::uint32_t> runs = runs_before(plan);
  std::vector<Idle> drops = idle_into_backward(context, plan);
  std::erase_if(drops, [&](const Idle& idle) {
    if (runs[idle.after] == runs[idle.before + 1]) return true;  // nothing runs without it
    // Two readers in forward make it a fork, where a segment ends.
    const Tensor& tensor = context.trace[idle.tensor];
    if (tensor.role == Role::saved && !options.drop_saved) return true;
    return tensor.bytes < options.least || idle.readers > 1 ||
           !cheap[plan.steps[idle.made].subject];
  });
  const auto worth = [&](const Idle& idle) {
    const double time = static_cast<double>((clock[idle.after] - clock[idle.before]).count) + 1;
    const double cost = static_cast<double>((clock[idle.made + 1] - clock[idle.made]).count) + 1 +
                        static_cast<double>(time_below(context, idle).count);
    return static_cast<double>(context.trace[idle.tensor].bytes.count) * time / cost;
  };
  std::stable_sort(drops.begin(), drops.end(),
                   [&](const Idle& a, const Idle& b) { return worth(a) > worth(b); });
  return drops;
}

/// All of them, to be kept once they are made again or not.
std::vector<Drop> with_strategy(const std::vector<Idle>& idles, bool keep) {
  std::vector<Drop> drops;
  for (const Idle& idle : idles) drops.push_back({idle, keep});
  return drops;
}

/// Segments that take more than the largest layer are not kept.
std::vector<Drop> cost_aware(const PolicyContext& context, const Plan& plan,
                             const std::vector<Idle>& idles, const std::vector<bool>& cheap,
                             LayerPeak measure) {
  const Segments segments = find_segments(context, plan, idles, cheap, measure);
  std::vector<Drop> drops = with_strategy(idles, true);
  for (std::size_t i = 0; i < drops.size(); ++i) {
    const Bytes live = segments.live[segments.of[i]];
    drops[i].keep = live <= segments.layer_peak;
    if (context.explain && !drops[i].keep)
      drops[i].why = fmt::format(", each time, as its segment takes {} and the largest layer {}",
                                 format_bytes(live), format_bytes(segments.layer_peak));
  }
  return drops;
}

/// The fewest of the drops that fit, of thousands to half a percent, if all of them do.
std::optional<Plan> fewest(const PolicyContext& context, const Rebuild& rebuild,
                           const std::vector<Drop>& drops, const Plan& all) {
  if (!fits(context, all)) return {};
  const auto build = [&](std::size_t count) {
    return rebuild.without({drops.begin(), drops.begin() + static_cast<std::ptrdiff_t>(count)});
  };
  const std::size_t grain = std::max<std::size_t>(drops.size() / 256, 1);
  return build(fewest_that_fit(context, drops.size(), build, grain));
}

}  // namespace

Result<Plan> recompute(const PolicyContext& context, const Plan& incoming) {
  const Result<Options> options = parse(context);
  if (!options) return options.error();
  if (!options->need_all && fits(context, incoming)) return incoming;
  const std::vector<bool> cheap = cheap_ops(context);
  const std::vector<Idle> idles = droppable(context, incoming, cheap, *options);
  // Under a budget, as little as possible is made again: each segment once wherever that fits, then
  // by l_peak, then for every use.
  std::vector<std::vector<Drop>> tries;
  const bool aware = options->strategy == "cost_aware", any = aware && !options->need_all;
  if (options->strategy == "speed" || any) tries.push_back(with_strategy(idles, true));
  if (aware) tries.push_back(cost_aware(context, incoming, idles, cheap, options->layer_peak));
  if (options->strategy == "memory" || any) tries.push_back(with_strategy(idles, false));
  const Rebuild rebuild(context, incoming, cheap);
  Plan least = incoming;
  for (const std::vector<Drop>& drops : tries) {
    Plan all = rebuild.without(drops);
    if (options->need_all) return all;
    if (std::optional<Plan> plan = fewest(context, rebuild, drops, all)) return *std::move(plan);
    least = smaller_of(context, std::move(all), least);
  }
  return least;
}

}  // namespace superneurons
