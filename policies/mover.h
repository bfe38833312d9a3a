// Moving idle values to the host and back: which are worth it, and when each copy is issued.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "policies/rewrite.h"

namespace superneurons {

struct Lookahead {
  enum class Unit { copy, ops, layer_steps };
  Unit unit = Unit::copy;  // so that the predicted copy just hides
  std::uint32_t count = 0;
};

/// The option `lookahead` of a policy: "auto" (copy), "N" ops or "Nlayers".
Result<Lookahead> parse_lookahead(const PolicyContext& context, std::string_view policy);

inline constexpr std::uint32_t kNoWindow = 0xffffffff;

/// When to give back what is copied out, and when to bring it back: when the copy is predicted to
/// be done, but while at most so many values are on their way. Small windows save memory where the
/// link is slower than the ops, and make the ops wait for it. 0: free right after the last forward
/// use, prefetch right before the need.
struct Timing {
  std::uint32_t out_window = kNoWindow;
  std::uint32_t in_window = kNoWindow;
  Lookahead lookahead;
};

/// Moves values that wait from forward into backward, given the incoming plan. Times are of a
/// model: ops one after another without stalls, copies one after another in each direction.
class Mover {
 public:
  /// Takes the idle values that are `wanted`, have time to leave, and fit the host budget.
  Mover(const PolicyContext& context, const Plan& plan,
        const std::function<bool(const Idle&)>& wanted);
  /// The same where idle_into_backward() of the plan is known already.
  Mover(const PolicyContext& context, const Plan& plan, std::span<const Idle> idles,
        const std::function<bool(const Idle&)>& wanted);

  std::size_t count() const { return candidates_.size(); }

  /// The plan with the best `count` candidates moved, as far as the timing finds it worth it. Best
  /// are those whose copies hide, and of those the ones with most bytes x time.
  Plan move(std::size_t count, const Timing& timing) const;

 private:
  struct Move {
    Idle idle;
    std::uint32_t free_at = 0;  // places: before this step
    std::uint32_t fetch_at = 0;
  };

  Bytes bytes(const Idle& idle) const { return context_.trace[idle.tensor].bytes; }
  Nanoseconds out_time(const Idle& idle) const;
  Nanoseconds in_time(const Idle& idle) const;
  Nanoseconds gap(const Idle& idle) const;
  bool hides(const Idle& idle) const;
  double area(const Idle& idle) const;
  void keep_within_host();
  void set_fetches(std::vector<Move>& moves, const Timing& timing) const;
  std::uint32_t fetch_place(const Idle& idle, Lookahead lookahead, Nanoseconds start) const;
  void set_frees(std::vector<Move>& moves, const Timing& timing) const;
  void add(const Move& move, Edits& edits) const;

  const PolicyContext& context_;
  const Plan& plan_;
  std::vector<Nanoseconds> clock_;
  std::vector<std::uint32_t> runs_;                 // by step: runs before it
  std::vector<std::uint32_t> run_step_;             // by run: its step
  std::vector<std::uint32_t> first_of_layer_step_;  // by layer step: its first step
  std::vector<Idle> candidates_;                    // the best first
};

}  // namespace superneurons
