#include "policies/alternatives.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "ir/files.h"
#include "memory/allocator.h"
#include "policies/rewrite.h"

namespace superneurons {
namespace {

/// Ops planned for, over all alternatives, from which on one that fits is good enough, unless the
/// trace is short. Passes that bound their own effort are tried of longer ones too.
constexpr std::size_t kEffort = 20'000;
constexpr std::size_t kShort = 2'000;
constexpr std::size_t kLongest = 50'000;

bool stopped(const PlanRequest& request) {
  return request.stop != nullptr && request.stop->load(std::memory_order_relaxed);
}

Error cancelled() { return {ErrorCode::cancelled, "stopped while planning"}; }

bool same(const Pass& a, const Pass& b) { return a.entry == b.entry && a.options == b.options; }

bool same(const Plan& a, const Plan& b) { return a.begin == b.begin && a.steps == b.steps; }

}  // namespace

std::optional<Error> unlawful(const PlanChecker& checker, Plan& plan, std::string_view pass) {
  const Budget budget = std::exchange(plan.budget, {kEndless, kEndless});
  const std::optional<Violation> violation = checker.check(plan);
  plan.budget = budget;
  if (!violation) return {};
  Error error = to_error(*violation);
  error.message = fmt::format("policy {} made an unlawful plan: {}", pass, error.message);
  return error;
}

Alternatives::Alternatives(const Trace& trace, const DeviceProfile& profile,
                           const PlanRequest& request, const Predict& predict,
                           const std::vector<std::vector<Pass>>& alternatives)
    : trace_(trace),
      profile_(profile),
      request_(request),
      predict_(predict),
      flow_(analyze(trace)),
      footprints_(trace),
      checker_(trace),
      keep_all_(keep_all_plan(trace)) {
  keep_all_.allocator = request.allocator;
  for (const std::vector<Pass>& passes : alternatives) paths_.push_back(add_path(passes));
}

std::vector<std::size_t> Alternatives::add_path(const std::vector<Pass>& passes) {
  std::vector<std::size_t> path;
  for (const Pass& pass : passes) {
    const bool first = path.empty();
    const auto here = [&](const Node& node) {
      const auto index = static_cast<std::size_t>(&node - nodes_.data());
      return (first ? node.parent == index : node.parent == path.back() && index != path.back()) &&
             same(*node.pass, pass);
    };
    const auto known = std::find_if(nodes_.begin(), nodes_.end(), here);
    auto index = static_cast<std::size_t>(known - nodes_.begin());
    if (known == nodes_.end()) {
      const bool free = pass.entry->any_budget && (first || nodes_[path.back()].any_budget);
      nodes_.push_back({&pass, first ? index : path.back(), free, 0, 0, {}});
    }
    ++nodes_[index].users;
    path.push_back(index);
  }
  return path;
}

void Alternatives::begin(Budget budget) {
  keep_all_.budget = budget;
  for (Node& node : nodes_) {
    node.left = node.users;
    if (node.any_budget && node.plan) node.plan->budget = budget;
    else node.plan.reset();
  }
}

Result<Plan> Alternatives::run_pass(const Node& node, Budget budget, Nanoseconds to_beat,
                                    const Plan& incoming) const {
  if (stopped(request_)) return cancelled();
  const Pass& pass = *node.pass;
  const PolicyContext context{trace_,       flow_,        profile_,         budget,
                              predict_,     pass.options, request_.explain, request_.stop,
                              &footprints_, to_beat};
  Result<Plan> plan = pass.entry->plan(context, incoming);
  if (!plan) return plan;
  if (stopped(request_)) return cancelled();
  if (std::optional<Error> error = unlawful(checker_, *plan, pass.entry->name)) return *error;
  return plan;
}

Result<Plan> Alternatives::run(const std::vector<std::size_t>& path, Budget budget,
                               Nanoseconds to_beat) {
  Plan own;  // behind the last node that others share
  const Plan* plan = &keep_all_;
  for (const std::size_t index : path) {
    Node& node = nodes_[index];
    --node.left;
    if (!node.plan) {
      // What others go on from has to be as good as it can be.
      const bool last = index == path.back() && node.left == 0;
      Result<Plan> next = run_pass(node, budget, last ? to_beat : kLatest, *plan);
      if (!next) return next;
      if (node.left == 0 && !node.any_budget) {
        own = *std::move(next);
        plan = &own;
        continue;
      }
      node.plan = *std::move(next);
    } else if (node.left == 0 && !node.any_budget) {
      own = *std::move(node.plan);
      node.plan.reset();
      plan = &own;
      continue;
    }
    plan = &*node.plan;
  }
  return plan == &own ? std::move(own) : *plan;
}

/// The merit, or, of a plan that cannot beat a rival, one that is as bad as the rival's.
Alternatives::Merit Alternatives::merit_of(const Plan& plan, const Merit* rival) const {
  if (!footprints_.fits(plan, plan.budget.device)) {
    if (rival != nullptr && rival->fits) return {false, kEndless.count};
    const std::optional<Bytes> arena = footprints_.smallest_arena(plan);
    return {false, arena ? arena->count : kEndless.count};
  }
  if (!predict_) return {true, 0};
  // Nothing takes less time than its ops do.
  if (rival != nullptr && rival->fits && compute_time(footprints_, plan).count >= rival->cost)
    return *rival;
  const Result<Prediction> prediction = predict_(plan);
  return {true, prediction ? prediction->step_ns.count : kEndless.count};
}

bool Alternatives::affordable(const std::vector<std::size_t>& path, std::size_t effort) const {
  if (effort < kEffort || trace_.ops.size() <= kShort) return true;
  return nodes_[path.back()].pass->entry->bounded && trace_.ops.size() <= kLongest;
}

Result<Plan> Alternatives::best(Bytes device) {
  const Budget budget{device, request_.budget.host};
  begin(budget);
  std::optional<Plan> best;
  std::size_t winner = 0, effort = 0;
  std::vector<Merit> merits;
  for (const std::vector<std::size_t>& path : paths_) {
    if (best && merits[winner].fits && !affordable(path, effort)) {
      merits.push_back({false, kEndless.count, false});
      continue;
    }
    effort += trace_.ops.size();
    const bool rival_fits = best && merits[winner].fits && predict_;
    Result<Plan> plan = run(path, budget, rival_fits ? Nanoseconds{merits[winner].cost} : kLatest);
    if (!plan || paths_.size() == 1) return plan;
    if (best && same(*best, *plan)) {
      merits.push_back(merits[winner]);
      continue;
    }
    // To explain, all times have to be known.
    const Merit* const rival = best && !request_.explain ? &merits[winner] : nullptr;
    merits.push_back(merit_of(*plan, rival));
    if (best && !merits.back().beats(merits[winner])) continue;
    winner = merits.size() - 1;
    best = *std::move(plan);
  }
  if (request_.explain) explain(winner, merits, *best);
  return *std::move(best);
}

/// A sentence ahead of all others: which alternative it is, and by how much the best.
void Alternatives::explain(std::size_t winner, const std::vector<Merit>& merits, Plan& plan) const {
  const auto text = [&](std::size_t alternative) {
    std::string result;
    for (const std::size_t node : paths_[alternative]) {
      if (!result.empty()) result += '+';
      result += text_of(*nodes_[node].pass);
    }
    return result;
  };
  const auto cost = [&](const Merit& merit) {
    return merit.fits ? format_time(Nanoseconds{merit.cost}) : format_bytes(Bytes{merit.cost});
  };
  std::optional<std::size_t> next;
  for (std::size_t i = 0; i < merits.size(); ++i) {
    if (i == winner || !merits[i].tried ||
        (merits[i].fits == merits[winner].fits && merits[i].cost == merits[winner].cost))
      continue;
    if (!next || merits[i].beats(merits[*next])) next = i;
  }
  const Merit& best = merits[winner];
  const auto tried =
      std::count_if(merits.begin(), merits.end(), [](const Merit& merit) { return merit.tried; });
  std::string why = fmt::format("{} is the best of {} alternatives", text(winner), tried);
  if (static_cast<std::size_t>(tried) < paths_.size())
    why += fmt::format(" tried of {}", paths_.size());
  if (!best.fits) why += fmt::format(", none of which fits: it needs least, {}", cost(best));
  else if (predict_) why += fmt::format(": it is predicted to take {}", cost(best));
  if (!next) why += tried > 1 ? "; the others do the same" : "";
  else if (best.fits && !merits[*next].fits) why += "; no other fits";
  else
    why += fmt::format("; the next is {} with {}, {:+.1f} %", text(*next), cost(merits[*next]),
                       100 * (static_cast<double>(merits[*next].cost) /
                                  static_cast<double>(std::max<std::int64_t>(best.cost, 1)) -
                              1));
  plan.reasons.insert(plan.reasons.begin(), {0, std::move(why)});
}

}  // namespace superneurons
