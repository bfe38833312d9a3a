// All plans of one request, for one budget after another. What does not depend on the budget is
// found once; passes that several alternatives begin with run once.
#pragma once

#include <optional>
#include <vector>

#include "ir/check.h"
#include "memory/footprints.h"
#include "policies/policy.h"
#include "policies/request.h"

namespace superneurons {

/// check() with no limit on bytes, as an Error that names who made the plan: passes after it may
/// still bring it under the budget.
std::optional<Error> unlawful(const PlanChecker& checker, Plan& plan, std::string_view pass);

class Alternatives {
 public:
  /// Trace, profile, request and predict must outlive it; the request must be well-formed
  /// (refuse_request).
  Alternatives(const Trace& trace, const DeviceProfile& profile, const PlanRequest& request,
               const Predict& predict, const std::vector<std::vector<Pass>>& alternatives);

  /// The best plan of all alternatives for this device budget, the first of equals: one that fits
  /// before one that does not; of those that fit the fastest, if there is a simulator to ask; of
  /// those that do not the one of smallest arena. Of a trace of more than 2,000 ops not all
  /// alternatives are tried, once one fits. The plan is lawful but for its bytes.
  Result<Plan> best(Bytes device);

  const PlanChecker& checker() const { return checker_; }
  const Footprints& footprints() const { return footprints_; }

 private:
  /// A pass behind those of its parent: alternatives that begin alike share nodes.
  struct Node {
    const Pass* pass = nullptr;
    std::size_t parent = 0;  // itself if it is the first
    bool any_budget = false;
    int users = 0;  // alternatives that go through it
    int left = 0;   // of these, still to come for the budget at hand
    std::optional<Plan> plan;
  };
  struct Merit {
    bool fits = false;
    std::int64_t cost = 0;  // ns if it fits, bytes if not
    bool tried = true;

    bool beats(const Merit& other) const { return fits != other.fits ? fits : cost < other.cost; }
  };

  std::vector<std::size_t> add_path(const std::vector<Pass>& passes);
  bool affordable(const std::vector<std::size_t>& path, std::size_t effort) const;
  void begin(Budget budget);
  Result<Plan> run(const std::vector<std::size_t>& path, Budget budget, Nanoseconds to_beat);
  Result<Plan> run_pass(const Node& node, Budget budget, Nanoseconds to_beat,
                        const Plan& incoming) const;
  Merit merit_of(const Plan& plan, const Merit* rival) const;
  void explain(std::size_t winner, const std::vector<Merit>& merits, Plan& plan) const;

  const Trace& trace_;
  const DeviceProfile& profile_;
  const PlanRequest& request_;
  const Predict& predict_;
  Dataflow flow_;
  Footprints footprints_;
  PlanChecker checker_;
  Plan keep_all_;
  std::vector<Node> nodes_;
  std::vector<std::vector<std::size_t>> paths_;  // by alternative: its nodes
};

}  // namespace superneurons
