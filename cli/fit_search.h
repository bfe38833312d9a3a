// The search of `fit`: networks of ever other sizes, and whether a policy brings each under a
// budget.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/largest.h"
#include "cli/network_options.h"
#include "cli/session.h"
#include "policies/policy.h"

namespace superneurons {

/// Ops of a network from which on a refusal stays a guess: to try all takes some twenty plans.
inline constexpr std::size_t kMostOpsInFull = 10'000;

/// What is looked for.
struct FitQuestion {
  NetworkOptions network;
  CostOptions costs;
  std::string vary;         // "batch" or "depth"
  std::string budget;       // "12GiB"; "": the profile's
  std::string host_budget;  // the same
  std::string policy;
  std::string allocator = "first_fit";
  bool with_workspaces = false;  // reckon with the kernels of this machine's GPU
};

/// What is varied: the batch, or n3 of "resnet:n1,n2,n3,n4".
struct Varied {
  std::string before, after;      // of the network's name, around n3; "" when the batch varies
  std::int64_t other_blocks = 0;  // n1 + n2 + n4
  std::int64_t most = 1 << 20;    // of the value: images, or blocks

  bool depth() const { return !before.empty(); }
  NetworkOptions at(NetworkOptions options, std::int64_t value) const;
  /// Layers with weights: 3 per bottleneck, the first convolution and the last linear layer.
  std::int64_t depth_of(std::int64_t value) const { return 3 * (other_blocks + value) + 2; }
  /// "batch 4", "n3 = 6 (depth 50)".
  std::string name(std::int64_t value) const;
};
/// Error bad_usage where the network has no such thing, or not as it should be written.
Result<Varied> varied(const FitQuestion& question);

/// A network of one value, and whether a plan fits.
struct Tried {
  std::int64_t value = 0;
  Bytes placed_peak{};       // where it fits
  std::optional<Error> why;  // where it does not
  Bytes working_set{};       // of the largest op: no plan needs less
  bool final = true;         // whatever the policy can do was tried, as `plan` does
};

/// A network with the plan that brings it under the budget.
struct Found {
  std::int64_t value = 0;
  CostedTrace costed;
  Plan plan;
};

class FitSearch {
 public:
  FitSearch(const FitQuestion& question, const Varied& vary, const Costs& costs,
            const Session& session)
      : question_(question), vary_(vary), costs_(costs), session_(session) {}

  /// Error bad_usage for what is no size.
  Status set_budgets();
  /// First in brief, where a policy's guess that it does not fit is believed; from what is found
  /// there on, with all that `plan` tries, but for very deep networks. `tried` are the answers of
  /// the latter.
  Result<Largest> run();

  const PlanRequest& request() const { return request_; }
  const std::vector<Tried>& tried() const { return tried_; }
  /// Null if that value was not tried.
  const Tried* tried(std::int64_t value) const;
  const std::optional<Found>& found() const { return found_; }
  /// Whether more than `value` cannot fit, whatever the policy: tensors and the workspaces of
  /// estimated costs grow with the batch, and no plan needs less than an op.
  bool exact(std::int64_t value) const;
  /// Of the smallest network: below that budget this policy does nothing.
  Result<Floor> floor() const;

 private:
  Result<CostedTrace> network_of(std::int64_t value) const;
  Result<bool> fits(std::int64_t value, bool thorough);

  const FitQuestion& question_;
  const Varied& vary_;
  const Costs& costs_;
  const Session& session_;
  PlanRequest request_;
  std::vector<Tried> tried_;  // in the order of the search, each value once
  std::optional<Found> found_;
};

}  // namespace superneurons
