#include "policies/rebuild.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "ir/files.h"

namespace superneurons {
namespace {

constexpr std::int64_t kAbsent = -1;
constexpr int kLongestChain = 32;  // reruns in a row; a longer chain keeps a value in between

/// What is known of a tensor at the current step. Versions, or kAbsent.
struct Copy {
  std::int64_t device = kAbsent, host = kAbsent;
  std::int64_t dropped = kAbsent;  // the value that was dropped and is still to be made again
  std::size_t drop = 0;            // the edit that dropped it last
  bool keep = true;                // once made again, though only as a link
  std::uint32_t absent_since = 0;  // place from which it may be brought back
  std::uint32_t built = 0;         // the last segment that made it: 1 + plan step
  bool kept = false;               // made again until its last use, not only as a link
};

}  // namespace

/// Walks the plan once and edits it.
class Rebuilder {
 public:
  Rebuilder(const Rebuild& base, std::vector<Drop> drops)
      : base_(base),
        context_(base.context_),
        plan_(base.plan_),
        may_rerun_(base.may_rerun_),
        clock_(base.clock_),
        runs_(base.runs_),
        copies_(context_.trace.tensors.size()),
        choice_(context_.trace.ops.size(), 0),
        drops_(std::move(drops)),
        edits_(plan_.steps.size()) {
    std::stable_sort(drops_.begin(), drops_.end(),
                     [](const Drop& a, const Drop& b) { return a.idle.before < b.idle.before; });
    for (std::size_t i = 0; i < plan_.begin.size(); ++i) {
      Copy& start = copies_[context_.trace.carry[i].start.index];
      if (plan_.begin[i].place == Place::device) start.device = 0;
      if (plan_.begin[i].place == Place::host) start.host = 0;
    }
  }

  Plan run() && {
    std::size_t next_drop = 0;
    for (at_ = 0; at_ < plan_.steps.size(); ++at_) {
      const PlanStep& step = plan_.steps[at_];
      if (step.kind == StepKind::run) run_op(step, base_.rerun_[at_]);
      else move(step);
      for (; next_drop < drops_.size() && drops_[next_drop].idle.before == at_; ++next_drop)
        drop(drops_[next_drop]);
    }
    return std::move(edits_).apply(plan_);
  }

 private:
  struct Rerun {
    OpId op;
    std::vector<TensorId> discard;
  };
  struct Mark {
    std::size_t log, reruns, fetches;
  };

  Copy& copy(TensorId tensor) { return copies_[tensor.index]; }
  const std::string& name(TensorId tensor) const { return context_.trace[tensor].name; }

  void run_op(const PlanStep& step, bool rerun) {
    wanted_ = needs_of(context_, step, rerun);
    while (!ensure_wanted()) {
    }
    emit(step);
    choice_[step.subject] = step.choice;
    visit_makes(context_, step, rerun, [&](const Value& made) {
      copy(made.tensor).device = made.version;
      copy(made.tensor).dropped = kAbsent;
    });
  }

  void move(const PlanStep& step) {
    Copy& moved = copy(step.tensor());
    if (step.kind == StepKind::prefetch) {
      if (moved.device != kAbsent) edits_.remove(at_);  // a segment needed it earlier
      else moved.device = moved.host;
    } else if (step.kind == StepKind::offload) {
      moved.host = moved.device;
    } else if (step.kind == StepKind::free_host) {
      moved.host = kAbsent;
    } else {
      moved.device = kAbsent;
      moved.absent_since = at_ + 1;
    }
  }

  void drop(const Drop& what) {
    const Idle& idle = what.idle;
    Copy& dropped = copy(idle.tensor);
    if (dropped.device != idle.version) return;
    std::string why;
    if (context_.explain)
      why = fmt::format("{} ({}) is made again by {} in {} when {} needs it{}", name(idle.tensor),
                        format_bytes(context_.trace[idle.tensor].bytes), op_name(idle.made),
                        format_time(clock_[idle.made + 1] - clock_[idle.made]), op_name(idle.after),
                        what.why);
    dropped.drop =
        edits_.insert(at_ + 1, Rank::free, tensor_step(StepKind::free, idle.tensor), why);
    dropped.dropped = idle.version;
    dropped.keep = what.keep;
    dropped.device = kAbsent;
    dropped.absent_since = at_ + 1;
  }

  const std::string& op_name(std::uint32_t step) const {
    return context_.trace[plan_.steps[step].op()].name;
  }

  /// False if a drop was taken back for another try: an older value of the same tensor, made again
  /// for one need, stands in the way of another, or would pass where the dropped one has to stay.
  bool ensure_wanted() {
    for (const Value& need : wanted_)
      if (!ensure(need, 0) && copy(need.tensor).dropped == need.version)
        return try_without(need.tensor);
    for (const auto& [tensor, before] : log_) {
      const Copy& now = copy(tensor);
      if (now.dropped != kAbsent && now.dropped != now.device) return try_without(tensor);
    }
    return true;
  }

  bool try_without(TensorId tensor) {
    roll_back({0, 0, 0});
    take_back(copy(tensor));
    return false;
  }

  void take_back(Copy& dropped) {
    edits_.cancel(dropped.drop);
    dropped.device = dropped.dropped;
    dropped.dropped = kAbsent;
  }

  /// Makes `want` present before the current step, by a copy, by reruns, or by taking a drop back.
  bool ensure(const Value& want, int depth) {
    Copy& wanted = copy(want.tensor);
    if (wanted.device == want.version) return true;
    if (wanted.device != kAbsent) return false;
    if (wanted.host == want.version) {
      log(want.tensor);
      wanted.device = want.version;
      fetches_.push_back(want.tensor);
      return true;
    }
    const Mark mark{log_.size(), reruns_.size(), fetches_.size()};
    if (depth < kLongestChain && make_again(want, depth)) return true;
    roll_back(mark);
    if (wanted.dropped != want.version) return false;
    take_back(wanted);
    return true;
  }

  bool make_again(const Value& want, int depth) {
    if (want.version == 0) return false;
    const OpId op = context_.flow[want.tensor].makers[want.version - 1];
    if (!may_rerun_[op.index]) return false;
    const PlanStep step = run_step(op, choice_[op.index]);
    const std::span<const Value> needs = needs_of(context_, step, true);
    for (const Value& need : needs)
      if (!ensure(need, depth + 1)) return false;
    for (const Value& need : needs)  // one link may have been overwritten for another
      if (copy(need.tensor).device != need.version) return false;
    Rerun rerun{op, {}};
    bool taken = true;
    visit_makes(context_, step, true,
                [&](const Value& made) { taken = taken && take(made, want, needs, rerun); });
    if (!taken) return false;
    if (copy(want.tensor).device != want.version) return false;  // an output of the first run only
    reruns_.push_back(std::move(rerun));
    return true;
  }

  /// Where one output of a rerun goes. False if the op must not run on what is there.
  bool take(const Value& made, const Value& want, std::span<const Value> needs, Rerun& rerun) {
    Copy& output = copy(made.tensor);
    const bool in_place = std::any_of(
        needs.begin(), needs.end(), [&](const Value& need) { return need.tensor == made.tensor; });
    const bool owed = output.dropped == made.version;
    if (in_place && output.built != at_ + 1) return false;  // its old value is not ours to spend
    if (!in_place && output.device == made.version) return true;  // writes the same again
    if (!in_place && (output.device != kAbsent || !(owed || made.tensor == want.tensor))) {
      rerun.discard.push_back(made.tensor);
      return true;
    }
    log(made.tensor);
    output.device = made.version;
    output.built = at_ + 1;
    output.kept = owed && (output.keep || is_wanted(made));
    if (output.kept) output.dropped = kAbsent;
    return true;
  }

  bool is_wanted(const Value& value) const {
    return std::find(wanted_.begin(), wanted_.end(), value) != wanted_.end();
  }

  void log(TensorId tensor) { log_.push_back({tensor, copy(tensor)}); }

  void roll_back(const Mark& mark) {
    for (; log_.size() > mark.log; log_.pop_back()) copy(log_.back().first) = log_.back().second;
    reruns_.resize(mark.reruns);
    fetches_.resize(mark.fetches);
  }

  /// Writes down the segment that ensure() put together, before the current step.
  void emit(const PlanStep& wanting) {
    for (const TensorId tensor : fetches_)
      edits_.insert(fetch_place(tensor), Rank::prefetch, tensor_step(StepKind::prefetch, tensor));
    std::vector<std::vector<TensorId>> last_use = links_by_last_use();
    for (std::size_t i = 0; i < reruns_.size(); ++i) {
      std::string why;
      if (context_.explain)
        why = fmt::format("{} needs what {} makes", context_.trace[wanting.op()].name,
                          context_.trace[reruns_[i].op].name);
      const OpId op = reruns_[i].op;
      edits_.insert(at_, Rank::run, run_step(op, choice_[op.index], std::move(reruns_[i].discard)),
                    std::move(why));
      for (const TensorId link : last_use[i]) {
        copy(link).drop = edits_.insert(at_, Rank::run, tensor_step(StepKind::free, link));
        copy(link).device = kAbsent;
        copy(link).absent_since = at_ + 1;
      }
    }
    for (const TensorId tensor : fetches_) {
      if (base_.last_touch_[tensor.index] >= at_) continue;
      // Only the segment needed it: the plan had sent it away for good.
      edits_.insert(at_, Rank::run, tensor_step(StepKind::free, tensor));
      copy(tensor).device = kAbsent;
      copy(tensor).absent_since = at_ + 1;
    }
    log_.clear();
    reruns_.clear();
    fetches_.clear();
  }

  /// For each rerun, the tensors made for this segment only that no later rerun touches.
  std::vector<std::vector<TensorId>> links_by_last_use() {
    std::vector<std::vector<TensorId>> result(reruns_.size());
    for (std::size_t i = reruns_.size(); i-- > 0;) {
      const OpFlow& flow = context_.flow[reruns_[i].op];
      for (const std::span<const Value> values : {flow.rerun_needs, flow.rerun_makes})
        for (const Value& value : values) {
          Copy& link = copy(value.tensor);
          if (link.built != at_ + 1 || link.kept || link.device == kAbsent) continue;
          link.built = 0;
          result[i].push_back(value.tensor);
        }
    }
    return result;
  }

  /// As far ahead of the segment as the plan's own prefetch was of its need: not at all, or as
  /// early as the copy takes, or, where nothing has a duration, by as many runs. Not before the
  /// tensor left.
  std::uint32_t fetch_place(TensorId tensor) const {
    const std::uint32_t lead = base_.lead_[tensor.index];
    if (lead == 0 || (lead == Rebuild::kNoLead && clock_.back() == 0_ns)) return at_;
    const std::uint32_t first = copies_[tensor.index].absent_since;
    if (clock_.back() == 0_ns) {
      const auto place = std::lower_bound(runs_.begin() + first, runs_.begin() + at_,
                                          runs_[at_] - std::min(runs_[at_], lead));
      return static_cast<std::uint32_t>(place - runs_.begin());
    }
    const Nanoseconds start =
        clock_[at_] - transfer_time(context_.profile.prefetch, context_.trace[tensor].bytes);
    const auto after = std::upper_bound(clock_.begin() + first, clock_.begin() + at_ + 1, start);
    return static_cast<std::uint32_t>(after - clock_.begin()) -
           (after == clock_.begin() + first ? 0 : 1);
  }

  const Rebuild& base_;
  const PolicyContext& context_;
  const Plan& plan_;
  const std::vector<bool>& may_rerun_;
  const std::vector<Nanoseconds>& clock_;
  const std::vector<std::uint32_t>& runs_;
  std::vector<Copy> copies_;           // by tensor
  std::vector<std::uint32_t> choice_;  // by op
  std::vector<Drop> drops_;            // in plan order
  Edits edits_;
  std::uint32_t at_ = 0;
  std::span<const Value> wanted_;  // by the op at hand
  // The segment being put together, and how to undo parts of it.
  std::vector<Rerun> reruns_;
  std::vector<TensorId> fetches_;
  std::vector<std::pair<TensorId, Copy>> log_;
};

Rebuild::Rebuild(const PolicyContext& context, const Plan& plan, const std::vector<bool>& may_rerun)
    : context_(context),
      plan_(plan),
      may_rerun_(may_rerun),
      rerun_(reruns(context.trace, plan)),
      clock_(clock_of(context, plan)),
      runs_(runs_before(plan)),
      lead_(context.trace.tensors.size(), kNoLead),
      last_touch_(context.trace.tensors.size(), 0) {
  find_last_touches();
  find_leads();
}

void Rebuild::find_last_touches() {
  for (std::uint32_t i = 0; i < plan_.steps.size(); ++i) {
    const PlanStep& step = plan_.steps[i];
    if (step.kind == StepKind::run) {
      const OpFlow& flow = context_.flow[step.op()];
      for (const std::span<const Value> values : {flow.needs, flow.makes})
        for (const Value& value : values) last_touch_[value.tensor.index] = i;
    } else if (step.kind == StepKind::prefetch || step.kind == StepKind::free) {
      last_touch_[step.subject] = i;
    }
  }
}

/// For each tensor, how many runs its last prefetch is ahead of who needs it.
void Rebuild::find_leads() {
  std::vector<std::uint32_t> next_need(lead_.size(), 0);
  for (std::uint32_t i = static_cast<std::uint32_t>(plan_.steps.size()); i-- > 0;) {
    const PlanStep& step = plan_.steps[i];
    if (step.kind == StepKind::run)
      for (const Value& need : needs_of(context_, step, rerun_[i]))
        next_need[need.tensor.index] = runs_[i];
    if (step.kind != StepKind::prefetch) continue;
    std::uint32_t& lead = lead_[step.subject];
    if (lead == kNoLead)
      lead = next_need[step.subject] - std::min(next_need[step.subject], runs_[i]);
  }
}

Plan Rebuild::without(std::vector<Drop> drops) const {
  return Rebuilder(*this, std::move(drops)).run();
}

}  // namespace superneurons
