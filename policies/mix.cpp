// Mix: recomputation and the tensor cache, each told what the other costs.
//   * A share of the values that wait from forward into backward is made again, whatever its kind:
//     first what gives most bytes (for longest) for the time that it takes to make again. Where
//     forward forks, a segment ends: what is there stays or moves.
//   * What memory is still short of moves, chosen by the cache's walk with the allocator at its
//     side (policies/cache_walk.h), whose next use is furthest first. So whatever is short, bytes
//     or holes, the plan places, as long as the operands of each run do.
//   * What was made again and then had to move would better have been made again once more: it is
//     not kept next time, and the walk goes again.
//   * Copies then go beside the ops (policies/overlap.h).
// Shares of values and of workspace are tried, a few around the best so far; then what becomes of
// ever smaller parts of the network is changed, one after another. The plan of least predicted time
// is taken. Plans that cannot beat another alternative are not finished. Without a simulator the
// first that fits is taken.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "policies/cache_needs.h"
#include "policies/cache_walk.h"
#include "policies/grant.h"
#include "policies/options.h"
#include "policies/overlap.h"
#include "policies/passes.h"
#include "policies/rebuild.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

constexpr std::int64_t kEffort = 30'000;  // ops planned for, over all tries
constexpr std::int64_t kMostTries = 50;
constexpr int kRounds = 4;        // of one try: what moved is made again instead
constexpr Bytes kSmall = 64_KiB;  // smaller tensors leave only when no larger one can
constexpr std::size_t kFewestParts = 8, kMostParts = 64;

/// How often overlap() may place the plan: plan steps in all, and placements at most.
struct Patience {
  std::int64_t steps = 0;
  std::int64_t most = 0;
  int of(const Plan& plan) const {
    const auto length = static_cast<std::int64_t>(std::max<std::size_t>(plan.steps.size(), 1));
    return static_cast<int>(std::clamp<std::int64_t>(steps / length, 2, most));
  }
};
constexpr Patience kSome{50'000, 30};      // with each try
constexpr Patience kMuch{1'000'000, 600};  // with the best

/// What counts beside the bytes that dropping a value gives for the time to make it again.
enum class Reach : std::uint8_t { root, square };  // of the time for which it waits

/// One try. `percent`: of the values that may be made again, how many are; `workspace`: percent of
/// the budget that ops reckon with for their workspaces.
struct Try {
  int percent = 0;
  Reach reach = Reach::root;
  int workspace = 0;
};

/// What becomes of a value that may be made again.
enum class Fate : std::uint8_t {
  stays,  // or moves, if memory is short
  kept,   // made again once, then stays until its last use
  again   // made again for each op that needs it
};
using Fates = std::vector<Fate>;  // of Dropper::values()

/// The values of a plan that may be made again, and the plan where some are.
class Dropper {
 public:
  Dropper(const PolicyContext& context, Plan plan)
      : context_(context), plan_(std::move(plan)), clock_(clock_of(context, plan_)) {
    for (const Op& op : context.trace.ops) may_rerun_.push_back(op.rerunnable);
    const std::vector<std::uint32_t> runs = runs_before(plan_);
    for (const Idle& idle : idle_into_backward(context, plan_))
      if (idle.readers <= 1 && may_rerun_[plan_.steps[idle.made].subject] &&
          runs[idle.after] > runs[idle.before + 1])
        values_.push_back(idle);
    std::stable_sort(values_.begin(), values_.end(),
                     [](const Idle& a, const Idle& b) { return a.made < b.made; });
    rebuild_.emplace(context_, plan_, may_rerun_);
  }
  Dropper(const Dropper&) = delete;  // the rebuild knows where the plan is
  Dropper& operator=(const Dropper&) = delete;

  const Plan& plan() const { return plan_; }
  std::span<const Idle> values() const { return values_; }  // in the order in which they are made

  /// The best `percent` of the values are made again.
  Fates choose(int percent, Reach reach) const {
    std::vector<std::pair<double, std::uint32_t>> order;
    for (std::uint32_t i = 0; i < values_.size(); ++i)
      order.emplace_back(-worth(values_[i], reach), i);
    std::sort(order.begin(), order.end());
    order.resize((order.size() * static_cast<std::size_t>(percent) + 99) / 100);
    Fates fates(values_.size(), Fate::stays);
    for (const auto& [worth, value] : order) fates[value] = Fate::kept;
    return fates;
  }

  Plan with(const Fates& fates) const {
    std::vector<Drop> drops;
    for (std::size_t i = 0; i < fates.size(); ++i)
      if (fates[i] != Fate::stays) drops.push_back({values_[i], fates[i] == Fate::kept});
    return rebuild_->without(std::move(drops));
  }

 private:
  double worth(const Idle& idle, Reach reach) const {
    const auto bytes = static_cast<double>(context_.trace[idle.tensor].bytes.count);
    const double wait = static_cast<double>((clock_[idle.after] - clock_[idle.before]).count) + 1;
    const double cost = static_cast<double>((clock_[idle.made + 1] - clock_[idle.made]).count) + 1;
    return bytes * (reach == Reach::root ? std::sqrt(wait) : wait * wait) / cost;
  }

  const PolicyContext& context_;
  Plan plan_;
  std::vector<Nanoseconds> clock_;
  std::vector<bool> may_rerun_;  // by op
  std::vector<Idle> values_;
  std::optional<Rebuild> rebuild_;
};

/// The plan with as much moved as it takes to place it; whether it does is for the caller to see.
Plan walked(const PolicyContext& context, const Plan& plan) {
  const Bytes room = std::max(context.budget.device, cache_floor(context, plan));
  return cache_walk(context, plan, {Evict::furthest_use, kSmall, room}).plan;
}

/// No step that follows the plan takes less, whatever choices its ops are granted.
class LeastTime {
 public:
  explicit LeastTime(const PolicyContext& context) : profile_(context.profile) {
    for (const Op& op : context.trace.ops) {
      Nanoseconds least{std::numeric_limits<std::int64_t>::max()};
      for (const Choice& choice : op.choices) least = std::min(least, choice.ns);
      of_op_.push_back(least);
    }
    for (const Tensor& tensor : context.trace.tensors) bytes_.push_back(tensor.bytes);
  }

  Nanoseconds operator()(const Plan& plan) const {
    Nanoseconds runs{}, out{}, in{};
    for (const PlanStep& step : plan.steps) {
      if (step.kind == StepKind::run) runs = later(runs, of_op_[step.subject]);
      if (step.kind == StepKind::offload)
        out = later(out, transfer_time(profile_.offload, bytes_[step.subject]));
      if (step.kind == StepKind::prefetch)
        in = later(in, transfer_time(profile_.prefetch, bytes_[step.subject]));
    }
    return std::max({runs, out, in});
  }

 private:
  const DeviceProfile& profile_;
  std::vector<Nanoseconds> of_op_;
  std::vector<Bytes> bytes_;  // by tensor
};

/// Tries, and the best plan so far.
class Search {
 public:
  Search(const PolicyContext& context, const Plan& incoming, int tries)
      : context_(context),
        incoming_(incoming),
        least_time_(context),
        compares_(context.predict && tries > 1),
        tries_(tries) {}

  /// The incoming plan if what fits cannot beat another alternative; nothing if nothing fits.
  std::optional<Plan> best() && {
    search_shares();
    if (best_) {
      use_workspace(from_.workspace);
      for (std::size_t parts = kFewestParts; parts <= kMostParts && goes_on(); parts *= 2)
        change_parts(parts);
      // Once more, with more patience for its copies.
      if (compares_)
        take(grant_what_is_left(context_, overlap(context_, moved_, {true, kMuch.of(moved_)}), {}));
    }
    return best_ || !fitted_ ? std::move(best_) : std::optional(incoming_);
  }

 private:
  bool goes_on() const { return tries_ > 0 && !stopped(context_) && (compares_ || !best_); }

  /// A coarse grid, then ever smaller steps from the best in each direction.
  void search_shares() {
    for (const int percent : {100, 50, 30, 20}) attempt({percent, Reach::root, 20});
    for (const int percent : {100, 75, 20}) attempt({percent, Reach::square, 20});
    for (const int workspace : {100, 50, 0}) attempt({from_.percent, from_.reach, workspace});
    for (int step = 16; step > 0; step /= 2) {
      const Try from = from_;
      attempt({from.percent - step, from.reach, from.workspace});
      attempt({from.percent + step, from.reach, from.workspace});
      const Reach other = from_.reach == Reach::root ? Reach::square : Reach::root;
      attempt({from_.percent, other, from_.workspace});
    }
  }

  /// All values of one of `parts` parts of the network after another get another fate. From the
  /// end: what is made last is needed first, and gains least by leaving.
  void change_parts(std::size_t parts) {
    const std::size_t count = fates_.size();
    for (std::size_t part = parts; part-- > 0;)
      for (const Fate fate : {Fate::stays, Fate::kept, Fate::again}) {
        Fates fates = fates_;
        std::fill(fates.begin() + static_cast<std::ptrdiff_t>(count * part / parts),
                  fates.begin() + static_cast<std::ptrdiff_t>(count * (part + 1) / parts), fate);
        if (fates != fates_) follow(std::move(fates), from_);
      }
  }

  void attempt(const Try& given) {
    if (!goes_on() || given.percent < 0 || given.percent > 100) return;
    use_workspace(given.workspace);
    follow(dropper_->choose(given.percent, given.reach), given);
  }

  void use_workspace(int percent) {
    if (dropper_ && workspace_ == percent) return;
    const Bytes room{context_.budget.device.count / 100 * percent};
    Plan plan = grant_alone(context_, incoming_, {}, room);
    workspace_ = percent;
    if (dropper_ && plan.steps == dropper_->plan().steps) return;
    tried_.clear();
    dropper_.emplace(context_, std::move(plan));
  }

  /// Makes plans for these fates until nothing that was made again moves.
  void follow(Fates fates, const Try& given) {
    for (int round = 0; round < kRounds && goes_on(); ++round) {
      if (std::find(tried_.begin(), tried_.end(), fates) != tried_.end()) return;
      tried_.push_back(fates);
      --tries_;
      const Plan moved = walked(context_, dropper_->with(fates));
      offer(moved, fates, given);
      if (!made_again_instead(moved, fates)) return;
    }
  }

  /// What was to be kept, but moved, is made again for each need. False if there is nothing of that
  /// kind.
  bool made_again_instead(const Plan& moved, Fates& fates) const {
    std::vector<bool> moves(context_.trace.tensors.size(), false);
    for (const PlanStep& step : moved.steps)
      if (step.kind == StepKind::offload) moves[step.subject] = true;
    bool any = false;
    for (std::size_t i = 0; i < fates.size(); ++i) {
      if (fates[i] != Fate::kept || !moves[dropper_->values()[i].tensor.index]) continue;
      fates[i] = Fate::again;
      any = true;
    }
    return any;
  }

  /// Keeps the plan, its copies beside the ops, if it is the fastest so far.
  void offer(const Plan& moved, const Fates& fates, const Try& given) {
    if (!fits(context_, moved)) return;
    fitted_ = true;
    const Nanoseconds least = context_.predict ? least_time_(moved) : 0_ns;
    if (least >= std::min(time_, context_.to_beat)) {
      // As long as nothing is good enough, what comes nearest shows the way.
      if (!best_ && least < nearest_) from_ = given;
      nearest_ = std::min(nearest_, least);
      return;
    }
    Plan plan = overlap(context_, moved, {true, kSome.of(moved)});
    if (!take(grant_what_is_left(context_, plan, {}))) return;
    moved_ = moved;
    fates_ = fates;
    from_ = given;
  }

  bool take(Plan plan) {
    if (!fits(context_, plan)) return false;
    Nanoseconds time{};
    if (compares_) {
      const Result<Prediction> prediction = context_.predict(plan);
      if (!prediction) return false;
      time = prediction->step_ns;
    }
    if (best_ && time >= time_) return false;
    best_ = std::move(plan);
    time_ = time;
    return true;
  }

  const PolicyContext& context_;
  const Plan& incoming_;
  LeastTime least_time_;
  bool compares_ = false;  // one try is taken as it is
  int tries_ = 0;
  int workspace_ = 0;
  std::optional<Dropper> dropper_;
  std::vector<Fates> tried_;       // with that dropper
  bool fitted_ = false;            // any, however slow
  Nanoseconds nearest_ = kLatest;  // least time of what was not worth finishing
  std::optional<Plan> best_;
  Nanoseconds time_ = kLatest;
  Plan moved_;   // the best before its copies went beside the ops
  Fates fates_;  // of the best
  Try from_{100, Reach::root, 20};
};

/// The option `tries`. Each takes time in proportion to the trace: a deep network gets by with
/// fewer.
Result<int> tries_of(const PolicyContext& context) {
  const std::string& text = context.options.at("tries");
  const auto ops = static_cast<std::int64_t>(std::max<std::size_t>(context.trace.ops.size(), 1));
  if (text == "auto")
    return static_cast<int>(std::clamp<std::int64_t>(kEffort / ops, 1, kMostTries));
  int tries = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), tries);
  if (error == std::errc() && stop == text.data() + text.size() && tries > 0) return tries;
  return bad_option("mix", "tries", text, "auto, or a number of plans to try, 1 to 2147483647");
}

/// What needs least of all, where nothing fits.
Plan utmost(const PolicyContext& context, const Plan& incoming) {
  const Dropper dropper(context, grant_least(context, incoming, {}));
  Plan least = walked(context, dropper.plan());
  for (const Fate fate : {Fate::kept, Fate::again})
    least = smaller_of(context, std::move(least),
                       walked(context, dropper.with(Fates(dropper.values().size(), fate))));
  return least;
}

}  // namespace

Result<Plan> mix(const PolicyContext& context, const Plan& incoming) {
  const Result<int> tries = tries_of(context);
  if (!tries) return tries.error();
  Plan fastest = grant_alone(context, incoming, {}, {std::int64_t{1} << 62});
  if (fits(context, fastest)) return fastest;
  if (std::optional<Plan> best = Search(context, incoming, *tries).best()) return *std::move(best);
  return stopped(context) ? incoming : utmost(context, incoming);
}

}  // namespace superneurons
