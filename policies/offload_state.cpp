// Offload of state: what lives from one training step to the next (momentum, if asked parameters)
// waits on the host and visits the device for the ops that touch it; if asked, gradients wait there
// for their update. SuperNeurons (PPoPP 2018, section 3.3) moves activations only, which is what
// bounds the depth that it reaches; ZeRO-Offload (ATC 2021) keeps optimizer state on the host, but
// updates it there.
//
//     m carried on the host    ... prefetch m; run SgdUpdate(w dw m); offload m; free m ...
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>

#include "ir/files.h"
#include "memory/allocator.h"
#include "policies/mover.h"
#include "policies/options.h"
#include "policies/overlap.h"
#include "policies/passes.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

constexpr std::string_view kName = "offload_state";
constexpr std::uint32_t kNoCarry = 0xffffffff;
/// Without durations, a gap of so many runs is worth leaving for.
constexpr std::uint32_t kLongGap = 8;

struct Options {
  std::array<bool, kRoleNames.size()> roles{};
  bool need_all = false;
  Bytes least{};
  Lookahead lookahead;
};

/// Steps [first, last] between which a tensor stays on the device.
struct Stay {
  std::uint32_t first = 0;
  std::uint32_t last = 0;
  bool needs = false;   // its first run reads what was there before
  bool writes = false;  // some run of it does
};

/// A tensor that may wait on the host, and the runs that touch it.
struct Traveller {
  TensorId tensor;
  std::uint32_t carry = kNoCarry;  // that it is both ends of, at home on the device
  std::vector<Touch> runs;
};

Result<Options> parse(const PolicyContext& context) {
  const Result<std::string> roles = one_of(
      context, kName, "roles", {"optimizer_state", "parameters", "both", "gradients", "all"});
  const Result<std::string> need = one_of(context, kName, "need", {"budget", "all"});
  const Result<Bytes> least = bytes_of(context, kName, "min");
  const Result<Lookahead> lookahead = parse_lookahead(context, kName);
  for (const Error* error :
       {roles ? nullptr : &roles.error(), need ? nullptr : &need.error(),
        least ? nullptr : &least.error(), lookahead ? nullptr : &lookahead.error()})
    if (error != nullptr) return *error;
  Options options{{}, *need == "all", *least, *lookahead};
  const auto take = [&](Role role, std::string_view name, bool both) {
    options.roles[static_cast<std::size_t>(role)] =
        *roles == name || *roles == "all" || (both && *roles == "both");
  };
  take(Role::optimizer_state, "optimizer_state", true);
  take(Role::parameter, "parameters", true);
  take(Role::gradient, "gradients", false);
  return options;
}

/// Every tensor of these roles that is carried onto itself, or not carried and freed only at its
/// end, and that no step moves yet; the largest first.
std::vector<Traveller> travellers(const PolicyContext& context, const Plan& plan,
                                  const Options& options) {
  const Trace& trace = context.trace;
  std::vector<std::optional<std::uint32_t>> carry(trace.tensors.size());  // none: cannot travel
  for (std::uint32_t t = 0; t < carry.size(); ++t)
    if (options.roles[static_cast<std::size_t>(trace.tensors[t].role)] &&
        trace.tensors[t].bytes >= options.least)
      carry[t] = kNoCarry;
  for (std::uint32_t i = 0; i < trace.carry.size(); ++i) {
    const auto [end, start] = trace.carry[i];
    const bool own = end == start && plan.begin[i].place == Place::device;
    for (const TensorId tensor : {end, start})
      if (carry[tensor.index]) carry[tensor.index] = own ? std::optional(i) : std::nullopt;
  }
  const Touches touches(context, plan);
  std::vector<Traveller> result;
  for (std::uint32_t t = 0; t < carry.size(); ++t) {
    if (!carry[t]) continue;
    Traveller traveller{{t}, *carry[t], {}};
    bool moves = false;
    for (const Touch& touch : touches[{t}]) {
      if (touch.kind == StepKind::run) traveller.runs.push_back(touch);
      const bool last_free = touch.kind == StepKind::free && traveller.carry == kNoCarry &&
                             touch.step == touches[{t}].back().step;
      moves = moves || (touch.kind != StepKind::run && !last_free);
    }
    if (!moves && (traveller.carry != kNoCarry || traveller.runs.size() > 1))
      result.push_back(std::move(traveller));
  }
  std::stable_sort(result.begin(), result.end(), [&](const Traveller& a, const Traveller& b) {
    return trace[a.tensor].bytes > trace[b.tensor].bytes;
  });
  return result;
}

class StateMover {
 public:
  StateMover(const PolicyContext& context, const Plan& plan, const Options& options)
      : context_(context),
        plan_(plan),
        options_(options),
        clock_(clock_of(context, plan)),
        runs_(runs_before(plan)),
        travellers_(travellers(context, plan, options)) {
    // No steps ahead: at the run itself, even inside its layer step.
    if (options.lookahead.count > 0)
      ahead_ = options.lookahead.unit == Lookahead::Unit::ops
                   ? run_steps(plan)
                   : layer_step_starts(context.trace, plan);
    keep_within_host();
  }

  std::size_t count() const { return travellers_.size(); }

  /// The plan with the largest `count` on the host whenever they have time to go there; with
  /// `always`, whenever any op runs between two that touch them.
  Plan build(std::size_t count, bool always) const {
    Plan plan = plan_;
    Edits edits(plan.steps.size());
    for (std::size_t i = 0; i < count; ++i) {
      const Traveller& traveller = travellers_[i];
      const std::vector<Stay> stays = stays_of(traveller, always);
      if (traveller.carry == kNoCarry) {
        between(traveller, stays, edits);
      } else {
        plan.begin[traveller.carry].place = Place::host;
        visits(traveller, stays, edits);
      }
    }
    return std::move(edits).apply(plan);
  }

 private:
  Bytes bytes(const Traveller& traveller) const { return context_.trace[traveller.tensor].bytes; }

  void keep_within_host() {
    Bytes room = context_.budget.host;
    for (std::size_t i = 0; i < plan_.begin.size(); ++i)
      if (plan_.begin[i].place == Place::host)
        room -= round_up(context_.trace[context_.trace.carry[i].start].bytes, kAllocationUnit);
    for (const PlanStep& step : plan_.steps)
      if (step.kind == StepKind::offload)
        room -= round_up(context_.trace[step.tensor()].bytes, kAllocationUnit);
    std::erase_if(travellers_, [&](const Traveller& traveller) {
      const Bytes size = round_up(bytes(traveller), kAllocationUnit);
      if (size > room) return true;
      room -= size;
      return false;
    });
  }

  bool worth(const Traveller& traveller, const Touch& from, const Touch& to, bool always) const {
    const std::uint32_t runs = runs_[to.step] - runs_[from.step + 1];
    if (always || runs == 0) return runs > 0;
    if (clock_.back() == 0_ns) return runs >= kLongGap;
    return clock_[to.step] - clock_[from.step + 1] >=
           later(std::min(transfer_time(context_.profile.offload, bytes(traveller)), kLatest),
                 std::min(transfer_time(context_.profile.prefetch, bytes(traveller)), kLatest));
  }

  std::vector<Stay> stays_of(const Traveller& traveller, bool always) const {
    std::vector<Stay> stays;
    for (std::size_t i = 0; i < traveller.runs.size(); ++i) {
      const Touch& run = traveller.runs[i];
      if (i == 0 || worth(traveller, traveller.runs[i - 1], run, always))
        stays.push_back({run.step, run.step, run.needs, false});
      stays.back().last = run.step;
      stays.back().writes = stays.back().writes || run.makes;
    }
    return stays;
  }

  /// Carried on the host: comes for each stay and leaves behind it.
  void visits(const Traveller& traveller, const std::vector<Stay>& stays, Edits& edits) const {
    for (std::size_t i = 0; i < stays.size(); ++i) {
      if (stays[i].needs) fetch(traveller, stays[i], i == 0 ? 0 : stays[i - 1].last + 1, edits);
      // What the next stay overwrites unread need not go anywhere.
      if (stays[i].writes && (i + 1 == stays.size() || stays[i + 1].needs))
        insert(edits, stays[i].last + 1, Rank::offload, StepKind::offload, traveller);
      insert(edits, stays[i].last + 1, Rank::free, StepKind::free, traveller);
    }
  }

  /// Not carried: leaves between its stays.
  void between(const Traveller& traveller, const std::vector<Stay>& stays, Edits& edits) const {
    bool on_host = false, current = false;
    std::uint32_t last_fetch = 0;
    for (std::size_t i = 0; i + 1 < stays.size(); ++i) {
      current = current && !stays[i].writes;
      if (stays[i + 1].needs && !current) {
        insert(edits, stays[i].last + 1, Rank::offload, StepKind::offload, traveller);
        on_host = current = true;
      }
      insert(edits, stays[i].last + 1, Rank::free, StepKind::free, traveller);
      if (!stays[i + 1].needs) continue;
      fetch(traveller, stays[i + 1], stays[i].last + 1, edits);
      last_fetch = stays[i + 1].first;
    }
    if (on_host) insert(edits, last_fetch, Rank::free_host, StepKind::free_host, traveller);
  }

  void fetch(const Traveller& traveller, const Stay& stay, std::uint32_t from, Edits& edits) const {
    const std::uint32_t place = std::max(
        from, ahead_.empty() ? stay.first : back(ahead_, stay.first, options_.lookahead.count));
    std::string why;
    if (context_.explain)
      why = fmt::format("{} ({}) waits on the host until {} needs it",
                        context_.trace[traveller.tensor].name, format_bytes(bytes(traveller)),
                        context_.trace[plan_.steps[stay.first].op()].name);
    edits.insert(place, Rank::prefetch, tensor_step(StepKind::prefetch, traveller.tensor), why);
  }

  void insert(Edits& edits, std::uint32_t place, Rank rank, StepKind kind,
              const Traveller& traveller) const {
    std::string why;
    if (context_.explain && kind == StepKind::offload)
      why = fmt::format("{} was written and lives on the host",
                        context_.trace[traveller.tensor].name);
    edits.insert(place, rank, tensor_step(kind, traveller.tensor), why);
  }

  const PolicyContext& context_;
  const Plan& plan_;
  const Options& options_;
  std::vector<Nanoseconds> clock_;
  std::vector<std::uint32_t> runs_;
  std::vector<std::uint32_t> ahead_;  // steps that a fixed look-ahead counts
  std::vector<Traveller> travellers_;
};

}  // namespace

Result<Plan> offload_state(const PolicyContext& context, const Plan& incoming) {
  const Result<Options> options = parse(context);
  if (!options) return options.error();
  if (!options->need_all && fits(context, incoming)) return incoming;
  const StateMover mover(context, incoming, *options);
  const OverlapOptions copies{.prefetches = options->lookahead.unit == Lookahead::Unit::copy};
  for (const bool always : {false, true}) {
    const auto build = [&](std::size_t count) { return mover.build(count, always); };
    Plan all = build(mover.count());
    if (fits(context, all)) {
      if (options->need_all) return overlap(context, all, copies);
      return overlap(context, build(fewest_that_fit(context, mover.count(), build)), copies);
    }
    if (always) return smaller_of(context, std::move(all), incoming);
    if (stopped(context)) break;
  }
  return incoming;
}

}  // namespace superneurons
