// Offload: the unified tensor pool of SuperNeurons (PPoPP 2018, section 3.3.1). Outputs of some
// layers leave for the host after their last forward use and come back ahead of their first
// backward use. Copies go out as soon as the value is made, in the shadow of the ops that still
// read it. The paper's text names convolutions alone (layers=conv); its figure 10b shows FC layers
// as well (conv_linear), look-ahead of three layer steps (lookahead=3layers) and frees right after
// the last forward use (free=early); its table 1 has no checkpoint on the device but for the
// current need (layers=checkpoints, lookahead=0). By default the predicted copies decide when.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "policies/mover.h"
#include "policies/offload_layers.h"
#include "policies/options.h"
#include "policies/passes.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

constexpr std::size_t kMany = 1000;

struct Options {
  std::vector<bool> moves;  // by op: its outputs do; empty: those of all
  bool need_all = false;
  Bytes least{};
  std::vector<Timing> timings;  // the gentlest first, the one of least memory last
};

/// Whether an op of these made it; others may have changed it in place since.
bool made_by(const PolicyContext& context, const Idle& idle, const std::vector<bool>& ops) {
  const std::vector<OpId>& makers = context.flow[idle.tensor].makers;
  return std::any_of(makers.begin(), makers.begin() + idle.version,
                     [&](OpId op) { return ops[op.index]; });
}

Result<Options> parse(const PolicyContext& context) {
  const Result<std::string> layers =
      one_of(context, "offload", "layers", {"auto", "conv", "conv_linear", "checkpoints", "all"});
  const Result<std::string> need = one_of(context, "offload", "need", {"budget", "all"});
  const Result<std::string> free = one_of(context, "offload", "free", {"auto", "late", "early"});
  const Result<Bytes> least = bytes_of(context, "offload", "min");
  const Result<Lookahead> lookahead = parse_lookahead(context, "offload");
  for (const Error* error : {layers ? nullptr : &layers.error(), need ? nullptr : &need.error(),
                             free ? nullptr : &free.error(), least ? nullptr : &least.error(),
                             lookahead ? nullptr : &lookahead.error()})
    if (error != nullptr) return *error;
  Options options{offload_layers(context.trace, *layers), *need == "all", *least, {}};
  for (const std::uint32_t window : {kNoWindow, 8U, 4U, 2U, 1U, 0U}) {
    const Timing timing{*free == "late"    ? kNoWindow
                        : *free == "early" ? 0
                                           : window,
                        lookahead->unit == Lookahead::Unit::copy ? window : kNoWindow, *lookahead};
    options.timings.push_back(timing);
  }
  return options;
}

/// The plan of least predicted time, the first of those offered where no simulator is at hand.
struct Best {
  std::optional<Plan> plan;
  Nanoseconds time{};

  void offer(const PolicyContext& context, Plan offered) {
    if (!fits(context, offered)) return;
    const Result<Prediction> prediction =
        context.predict ? context.predict(offered) : Result<Prediction>(Prediction{});
    if (!prediction || (plan && prediction->step_ns >= time)) return;
    time = prediction->step_ns;
    plan = std::move(offered);
  }
};

/// Few moves leave too much on the device, many clog the link, so that frees come late: tries some
/// counts for one that fits, then looks for fewer below it.
std::optional<std::size_t> fewest_of_some(const PolicyContext& context, std::size_t all,
                                          const std::function<Plan(std::size_t)>& build) {
  // Deep networks have so many that a few more or less do not matter, and the search does.
  const std::size_t parts = all > kMany ? 4 : 12;
  const std::size_t grain = all > kMany ? all / 64 : 1;
  std::size_t below = 0;  // does not fit
  for (std::size_t part = 1; part <= parts; ++part) {
    const std::size_t count = all * part / parts;
    if (count == below) continue;
    if (stopped(context)) return {};
    if (fits(context, build(count))) {
      const auto at = [&](std::size_t grains) {
        return std::min(count, below + 1 + grains * grain);
      };
      const std::size_t most = (count - below - 1 + grain - 1) / grain;
      return at(
          fewest_that_fit(context, most, [&](std::size_t grains) { return build(at(grains)); }));
    }
    below = count;
  }
  return {};
}

}  // namespace

Result<Plan> offload(const PolicyContext& context, const Plan& incoming) {
  const Result<Options> options = parse(context);
  if (!options) return options.error();
  if (!options->need_all && fits(context, incoming)) return incoming;
  const auto wanted = [&](const Idle& idle) {
    return context.trace[idle.tensor].bytes >= options->least &&
           (options->moves.empty() || made_by(context, idle, options->moves));
  };
  const Mover mover(context, incoming, wanted);
  const Timing& utmost = options->timings.back();
  Plan all = mover.move(mover.count(), utmost);
  if (!fits(context, all)) return smaller_of(context, std::move(all), incoming);
  Best best;
  for (const Timing& timing : options->timings) {
    const auto build = [&](std::size_t count) { return mover.move(count, timing); };
    if (options->need_all) best.offer(context, build(mover.count()));
    else if (const auto count = fewest_of_some(context, mover.count(), build))
      best.offer(context, build(*count));
    if (stopped(context)) break;
    if (best.plan && !context.predict) break;  // the gentlest is the best guess
  }
  return best.plan ? std::move(*best.plan) : all;
}

}  // namespace superneurons
