// Balance: our own answer to what SuperNeurons (PPoPP 2018) decides by the kind of a layer. Each
// value that waits from forward into backward is kept, moved or made again by what that is
// predicted to cost, and workspaces are granted with it in mind:
//   * A copy that hides costs nothing, but the link carries only so much while the ops run. What
//     moves is what would cost most to make again per byte, as much as a `load` of the link.
//   * What else has to go is made again, most bytes x time for the least time first, whatever its
//     kind, as few as it takes to fit.
//   * A workspace speeds up one op, and the tensors that make room for it cost time elsewhere: ops
//     reckon with a `share` of the budget until all is placed, then take what is left.
// Loads and shares are tried, a few of each around the best so far, and the plan of least predicted
// time is taken. Without a simulator it is the first that fits.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

#include "policies/grant.h"
#include "policies/mover.h"
#include "policies/options.h"
#include "policies/passes.h"
#include "policies/rebuild.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

constexpr std::int64_t kEffort = 200'000;  // ops planned for, over all tries
constexpr std::int64_t kFewestTries = 8;

/// One try. `load`: how much of the ops' time copies may take, in percent; `window`: how many
/// values may be on their way (policies/mover.h); `share`: percent of the budget that ops reckon
/// with for their workspaces.
struct Try {
  int load = 0;
  int share = 0;
  std::uint32_t window = kNoWindow;
  bool keep = true;  // what is made again stays (policies/rebuild.h)
  friend bool operator==(const Try&, const Try&) = default;
};

/// Makes a plan for a try. What depends only on the share is found once.
class Balancer {
 public:
  Balancer(const PolicyContext& context, const Plan& incoming, int share)
      : context_(context),
        plan_(grant_alone(context, incoming, {}, {context.budget.device.count / 100 * share})),
        clock_(clock_of(context, plan_)) {
    for (const Op& op : context.trace.ops) may_rerun_.push_back(op.rerunnable);
    const std::vector<std::uint32_t> runs = runs_before(plan_);
    all_idle_ = idle_into_backward(context, plan_);
    for (const Idle& idle : all_idle_)
      if (runs[idle.after] > runs[idle.before + 1]) idle_.push_back(idle);
    std::stable_sort(idle_.begin(), idle_.end(), [&](const Idle& a, const Idle& b) {
      return cost_per_byte(a) > cost_per_byte(b);
    });
  }

  /// As few drops as it takes to fit beside what moves; where none fit, all.
  Plan plan(const Try& given) const {
    const Plan moved = move(given);
    const std::vector<Idle> drops = droppable(moved);
    const Rebuild rebuild(context_, moved, may_rerun_);
    const auto build = [&](std::size_t count) {
      std::vector<Drop> some;
      some.reserve(count);
      for (std::size_t i = 0; i < count; ++i) some.push_back({drops[i], given.keep});
      return rebuild.without(std::move(some));
    };
    // Many drops in a row are rebuilt together, so that more of them may need more memory.
    constexpr std::size_t kParts = 6;
    std::size_t below = 0;  // does not fit
    for (std::size_t part = 0; part <= kParts && !stopped(context_); ++part) {
      const std::size_t count = drops.size() * part / kParts;
      if (part > 0 && count == below) continue;
      Plan some = build(count);
      if (!fits(context_, some)) {
        below = count;
        continue;
      }
      if (count == 0) return some;
      return build(below + 1 + fewest_that_fit(context_, count - below - 1, [&](std::size_t more) {
                     return build(below + 1 + more);
                   }));
    }
    return build(drops.size());
  }

 private:
  Nanoseconds time(std::uint32_t step) const { return clock_[step + 1] - clock_[step]; }
  double bytes(const Idle& idle) const {
    return static_cast<double>(context_.trace[idle.tensor].bytes.count);
  }

  /// Where forward forks, a segment ends: what is there is not made again.
  bool may_drop(const Idle& idle) const {
    return idle.readers <= 1 && may_rerun_[plan_.steps[idle.made].subject];
  }
  double cost_per_byte(const Idle& idle) const {
    if (!may_drop(idle)) return std::numeric_limits<double>::infinity();
    return static_cast<double>(time(idle.made).count) / bytes(idle);
  }

  Plan move(const Try& given) const {
    const std::vector<bool> leaves = leaving(given.load);
    const Mover mover(context_, plan_, all_idle_,
                      [&](const Idle& idle) { return leaves[idle.tensor.index]; });
    return mover.move(mover.count(), {given.window, given.window, {}});
  }

  /// Tensors that cost most to make again, as far as copies of them fit into the link's time.
  std::vector<bool> leaving(int load) const {
    std::vector<bool> leaves(context_.trace.tensors.size(), false);
    auto left = static_cast<double>(clock_.back().count) * load / 100;
    for (const Idle& idle : idle_) {
      const Bytes size = context_.trace[idle.tensor].bytes;
      const Nanoseconds copies = transfer_time(context_.profile.offload, size) +
                                 transfer_time(context_.profile.prefetch, size);
      if (static_cast<double>(copies.count) > left ||
          clock_[idle.after] - clock_[idle.before + 1] < copies)
        continue;
      left -= static_cast<double>(copies.count);
      leaves[idle.tensor.index] = true;
    }
    return leaves;
  }

  /// Most bytes x time for the least time to make it again first.
  std::vector<Idle> droppable(const Plan& plan) const {
    const std::vector<Nanoseconds> clock = clock_of(context_, plan);
    std::vector<Idle> drops;
    for (const Idle& idle : idle_into_backward(context_, plan))
      if (idle.readers <= 1 && may_rerun_[plan.steps[idle.made].subject]) drops.push_back(idle);
    const auto worth = [&](const Idle& idle) {
      const double length = static_cast<double>((clock[idle.after] - clock[idle.before]).count) + 1;
      const double cost = static_cast<double>((clock[idle.made + 1] - clock[idle.made]).count) + 1;
      return bytes(idle) * length / cost;
    };
    std::stable_sort(drops.begin(), drops.end(),
                     [&](const Idle& a, const Idle& b) { return worth(a) > worth(b); });
    return drops;
  }

  const PolicyContext& context_;
  Plan plan_;
  std::vector<Nanoseconds> clock_;
  std::vector<bool> may_rerun_;  // by op
  std::vector<Idle> all_idle_;   // in the order of tensors
  std::vector<Idle> idle_;       // what costs most to make again, per byte, first
};

/// Tries, and the best plan so far.
class Search {
 public:
  Search(const PolicyContext& context, const Plan& incoming, int tries)
      : context_(context), incoming_(incoming), tries_(tries) {}

  /// A coarse grid, then ever smaller steps from the best in each direction.
  void go() {
    for (const int share : {100, 70, 50, 35, 20, 0}) attempt({60, share});
    for (const int load : {0, 30, 100, 150, 250}) attempt({load, best_try_.share});
    for (const std::uint32_t window : {8U, 2U, 0U})
      for (const bool keep : {true, false})
        if (!best_) attempt({600, window == 8 ? 30 : 0, window, keep});
    for (int step = 40; step >= 5; step /= 2) {
      const Try from = best_try_;
      attempt({from.load - step, from.share, from.window, from.keep});
      attempt({from.load + step, from.share, from.window, from.keep});
      const Try there = best_try_;
      attempt({there.load, there.share - step / 2, there.window, there.keep});
      attempt({there.load, there.share + step / 2, there.window, there.keep});
      for (const std::uint32_t window : {kNoWindow, 8U, 3U})
        attempt({best_try_.load, best_try_.share, window, best_try_.keep});
      attempt({best_try_.load, best_try_.share, best_try_.window, !best_try_.keep});
    }
  }

  /// Keeps the plan if it fits and is the fastest so far.
  void offer(Plan plan, const Try& given) {
    if (!fits(context_, plan)) return;
    if (best_ && context_.predict && cannot_beat(plan)) return;
    Nanoseconds time{};
    if (context_.predict) {
      const Result<Prediction> prediction = context_.predict(plan);
      if (!prediction) return;
      time = prediction->step_ns;
    }
    if (best_ && time >= time_) return;
    best_ = std::move(plan);
    best_try_ = given;
    time_ = time;
  }

  std::optional<Plan> take() && { return std::move(best_); }

 private:
  void attempt(const Try& given) {
    const bool known = std::find(tried_.begin(), tried_.end(), given) != tried_.end();
    if (known || given.load < 0 || given.share < 0 || given.share > 100) return;
    if (tries_ <= 0 || stopped(context_) || (!context_.predict && best_)) return;
    --tries_;
    tried_.push_back(given);
    if (!balancer_ || share_ != given.share) balancer_.emplace(context_, incoming_, given.share);
    share_ = given.share;
    offer(grant_what_is_left(context_, balancer_->plan(given), {}), given);
  }

  /// It is the best plan again, or its ops alone take as long.
  bool cannot_beat(const Plan& plan) const {
    if (context_.footprints && compute_time(*context_.footprints, plan) >= time_) return true;
    return plan.steps == best_->steps && plan.begin == best_->begin;
  }

  const PolicyContext& context_;
  const Plan& incoming_;
  int tries_ = 0;
  int share_ = -1;
  std::optional<Balancer> balancer_;
  std::vector<Try> tried_;
  std::optional<Plan> best_;
  Try best_try_{150, 0};
  Nanoseconds time_{};
};

}  // namespace

Result<Plan> balance(const PolicyContext& context, const Plan& incoming) {
  int tries = 0;
  const std::string& text = context.options.at("tries");
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), tries);
  if (error != std::errc() || stop != text.data() + text.size() || tries < 1)
    return bad_option("balance", "tries", text, "a number of plans to try, 1 to 2147483647");
  Plan fastest = grant_alone(context, incoming, {}, {std::int64_t{1} << 62});
  if (fits(context, fastest)) return fastest;
  Plan kept = grant_what_is_left(context, incoming, {});
  // Each try takes time in proportion to the trace: a deep network gets by with fewer.
  const auto ops = static_cast<std::int64_t>(std::max<std::size_t>(context.trace.ops.size(), 1));
  const auto affordable = static_cast<int>(std::max<std::int64_t>(kEffort / ops, kFewestTries));
  Search search(context, incoming, std::min(tries, affordable));
  search.offer(kept, {60, 50});
  search.go();
  if (std::optional<Plan> best = std::move(search).take()) return std::move(*best);
  const Balancer balancer(context, incoming, 0);
  for (const bool keep : {true, false})
    kept = smaller_of(context, grant_what_is_left(context, balancer.plan({1000, 0, 0, keep}), {}),
                      kept);
  return kept;
}

}  // namespace superneurons
