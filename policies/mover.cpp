#include "policies/mover.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "ir/files.h"
#include "memory/allocator.h"
#include "policies/options.h"

namespace superneurons {
Result<Lookahead> parse_lookahead(const PolicyContext& context, std::string_view policy) {
  const std::string& text = context.options.at("lookahead");
  if (text == "auto") return Lookahead{};
  Lookahead lookahead{Lookahead::Unit::ops, 0};
  const char* end = text.data() + text.size();
  if (text.ends_with("layers")) {
    lookahead.unit = Lookahead::Unit::layer_steps;
    end -= 6;
  }
  const auto [stop, error] = std::from_chars(text.data(), end, lookahead.count);
  if (error == std::errc() && stop == end) return lookahead;
  return bad_option(policy, "lookahead", text, "auto, a number of ops, or 3layers");
}

Mover::Mover(const PolicyContext& context, const Plan& plan,
             const std::function<bool(const Idle&)>& wanted)
    : Mover(context, plan, idle_into_backward(context, plan), wanted) {}

Mover::Mover(const PolicyContext& context, const Plan& plan, std::span<const Idle> idles,
             const std::function<bool(const Idle&)>& wanted)
    : context_(context),
      plan_(plan),
      clock_(clock_of(context, plan)),
      runs_(runs_before(plan)),
      run_step_(run_steps(plan)),
      first_of_layer_step_(layer_step_starts(context.trace, plan)) {
  for (const Idle& idle : idles)
    if (wanted(idle) && runs_[idle.after] > runs_[idle.before] + 1) candidates_.push_back(idle);
  std::stable_sort(candidates_.begin(), candidates_.end(), [&](const Idle& a, const Idle& b) {
    if (hides(a) != hides(b)) return hides(a);
    return area(a) > area(b);
  });
  keep_within_host();
}

Plan Mover::move(std::size_t count, const Timing& timing) const {
  std::vector<Move> moves(count);
  for (std::size_t i = 0; i < count; ++i) moves[i].idle = candidates_[i];
  set_fetches(moves, timing);
  set_frees(moves, timing);
  Edits edits(plan_.steps.size());
  for (const Move& move : moves)
    if (move.free_at < move.fetch_at && runs_[move.fetch_at] > runs_[move.free_at])
      add(move, edits);
  return std::move(edits).apply(plan_);
}

Nanoseconds Mover::out_time(const Idle& idle) const {
  return transfer_time(context_.profile.offload, bytes(idle));
}
Nanoseconds Mover::in_time(const Idle& idle) const {
  return transfer_time(context_.profile.prefetch, bytes(idle));
}
Nanoseconds Mover::gap(const Idle& idle) const {
  return clock_[idle.after] - clock_[idle.before + 1];
}
bool Mover::hides(const Idle& idle) const { return gap(idle) >= out_time(idle) + in_time(idle); }
double Mover::area(const Idle& idle) const {
  const auto length = gap(idle) > 0_ns ? static_cast<double>(gap(idle).count)
                                       : static_cast<double>(idle.after - idle.before);
  return length * static_cast<double>(bytes(idle).count);
}

/// Drops what the host has no room for, counting every copy as if it stayed: no order of copies
/// needs more.
void Mover::keep_within_host() {
  const auto rounded = [&](TensorId tensor) {
    return round_up(context_.trace[tensor].bytes, kAllocationUnit);
  };
  Bytes used{};
  for (std::size_t i = 0; i < plan_.begin.size(); ++i)
    if (plan_.begin[i].place == Place::host) used += rounded(context_.trace.carry[i].start);
  for (const PlanStep& step : plan_.steps)
    if (step.kind == StepKind::offload) used += rounded(step.tensor());
  std::erase_if(candidates_, [&](const Idle& idle) {
    if (used + rounded(idle.tensor) > context_.budget.host) return true;
    used += rounded(idle.tensor);
    return false;
  });
}

/// Latest first: each copy in ends when its value is needed or the next copy starts.
void Mover::set_fetches(std::vector<Move>& moves, const Timing& timing) const {
  std::stable_sort(moves.begin(), moves.end(),
                   [](const Move& a, const Move& b) { return a.idle.after > b.idle.after; });
  Lookahead lookahead = timing.lookahead;
  if (lookahead.unit == Lookahead::Unit::copy && clock_.back() == 0_ns)
    lookahead = {Lookahead::Unit::layer_steps, 3};  // no durations: the paper's look-ahead
  Nanoseconds next = clock_.back();
  for (std::size_t i = 0; i < moves.size(); ++i) {
    const Idle& idle = moves[i].idle;
    next = std::max(std::min(next, clock_[idle.after]) - in_time(idle), 0_ns - kLatest);
    moves[i].fetch_at = fetch_place(idle, lookahead, next);
    if (timing.in_window >= moves.size() - i) continue;
    // Not before the value that is needed that many before it has been used.
    const std::uint32_t used =
        timing.in_window == 0 ? idle.after : moves[i + timing.in_window].idle.after + 1;
    moves[i].fetch_at = std::max(moves[i].fetch_at, std::min(used, idle.after));
  }
}

std::uint32_t Mover::fetch_place(const Idle& idle, Lookahead lookahead, Nanoseconds start) const {
  if (lookahead.unit == Lookahead::Unit::ops) return back(run_step_, idle.after, lookahead.count);
  if (lookahead.unit == Lookahead::Unit::layer_steps)
    // Inside its own layer step the value is wanted by this op, not by the layer's first.
    return lookahead.count == 0 ? idle.after
                                : back(first_of_layer_step_, idle.after, lookahead.count);
  const auto after = std::upper_bound(clock_.begin(), clock_.begin() + idle.after + 1, start);
  return after == clock_.begin() ? 0 : static_cast<std::uint32_t>(after - clock_.begin() - 1);
}

/// In the order of the copies out, which follow one another on their stream.
void Mover::set_frees(std::vector<Move>& moves, const Timing& timing) const {
  std::stable_sort(moves.begin(), moves.end(),
                   [](const Move& a, const Move& b) { return a.idle.made < b.idle.made; });
  Nanoseconds stream{};
  for (std::size_t i = 0; i < moves.size(); ++i) {
    Move& move = moves[i];
    stream = later(std::max(stream, clock_[move.idle.made + 1]), out_time(move.idle));
    const std::uint32_t first = move.idle.before + 1;
    const auto done = std::lower_bound(clock_.begin() + first, clock_.end(), stream);
    move.free_at = static_cast<std::uint32_t>(done - clock_.begin());
    if (timing.out_window >= moves.size() - i) continue;
    const std::uint32_t left = moves[i + timing.out_window].idle.before + 1;
    move.free_at = std::min(move.free_at, std::max(first, left));
  }
  if (timing.out_window > 0 || timing.lookahead.unit != Lookahead::Unit::copy) return;
  for (Move& move : moves)  // at least one run in between, or nothing is gained
    move.fetch_at = std::max(move.fetch_at, run_step_[runs_[move.free_at]] + 1);
}

void Mover::add(const Move& move, Edits& edits) const {
  const TensorId tensor = move.idle.tensor;
  std::string out, free, in;
  if (context_.explain) {
    const std::string& name = context_.trace[tensor].name;
    const auto op = [&](std::uint32_t step) { return context_.trace[plan_.steps[step].op()].name; };
    out = fmt::format("{} ({}) is idle for {} from {} to {}; its copies take {} and {}", name,
                      format_bytes(bytes(move.idle)), format_time(gap(move.idle)),
                      op(move.idle.before), op(move.idle.after), format_time(out_time(move.idle)),
                      format_time(in_time(move.idle)));
    free = fmt::format("{} is on the host", name);
    in = fmt::format("{} needs {}", op(move.idle.after), name);
  }
  edits.insert(move.idle.made + 1, Rank::offload, tensor_step(StepKind::offload, tensor), out);
  edits.insert(move.free_at, Rank::free, tensor_step(StepKind::free, tensor), free);
  edits.insert(move.fetch_at, Rank::prefetch, tensor_step(StepKind::prefetch, tensor), in);
  edits.insert(move.idle.after, Rank::free_host, tensor_step(StepKind::free_host, tensor));
}

}  // namespace superneurons
