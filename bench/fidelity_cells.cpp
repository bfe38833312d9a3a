#include "bench/fidelity_cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <thread>

#include "ir/files.h"
#include "ir/plan_io.h"
#include "ir/trace_io.h"
#include "memory/allocator.h"
#include "memory/placement.h"
#include "policies/policy.h"

namespace superneurons {
namespace {

/// What a replay takes beside its training steps: arena, libraries, checksums.
constexpr double kSetupSeconds = 0.2;

/// Percent of the liveness peak, or none.
std::optional<std::int64_t> percent_of(const std::string& budget) {
  std::int64_t percent = 0;
  const auto [end, error] = std::from_chars(budget.data(), budget.data() + budget.size(), percent);
  if (error != std::errc{} || end != budget.data() + budget.size()) return std::nullopt;
  return percent > 0 && percent <= 100'000 ? std::optional(percent) : std::nullopt;
}

/// FNV-1a over the text of what runs; whose plan it is and for what budget says nothing of that.
std::string hash_of(Plan plan) {
  plan.policy.clear();
  plan.budget = {};
  plan.reasons.clear();
  std::uint64_t hash = 14695981039346656037U;
  for (const char c : format_plan(plan)) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211U;
  }
  return fmt::format("{:016x}", hash);
}

/// What all cells of one network share.
struct Planning {
  const Subject& subject;
  const DeviceProfile& profile;
  const std::vector<std::string>& budgets;
  int steps;
  Predict predict;

  Result<Plan> plan(const std::string& policy, Bytes device, bool seek_floor) const {
    const PlanRequest request{
        .policy = policy, .budget = {device, profile.host_memory}, .seek_floor = seek_floor};
    return make_plan(subject.trace, profile, request, predict);
  }

  /// The answer to a budget below the floor names the floor.
  Result<Plan> under_budget(const std::string& policy, Bytes device, const Floor& floor) const {
    auto plan = this->plan(policy, device, device >= floor.budget);
    if (plan || plan.error().code != ErrorCode::does_not_fit) return plan;
    Error error = plan.error();
    if (error.message.find("smallest feasible budget") == std::string::npos)
      error.message += fmt::format(" (smallest feasible budget: {}, {} B, set by {})",
                                   format_bytes(floor.budget), floor.budget.count, floor.op);
    return error;
  }

  Bytes bytes_of(const std::string& budget, Bytes floor) const {
    if (budget == "floor") return floor;
    if (budget == "max") return profile.device_memory;
    return {subject.liveness_peak.count / 100 * percent_of(budget).value_or(100) +
            subject.liveness_peak.count % 100 * percent_of(budget).value_or(100) / 100};
  }

  void finish(FidelityCell& cell, Result<Plan> plan) const {
    if (!plan) {
      cell.why = plan.error();
      return;
    }
    const auto outcome = evaluate(subject.trace, *plan, profile);
    if (!outcome) {
      cell.why = outcome.error();
      return;
    }
    cell.plan_hash = hash_of(*plan);
    cell.plan = *std::move(plan);
    cell.estimate_s =
        kSetupSeconds + 1e-9 * static_cast<double>(outcome->step_ns.count) * steps +
        1e-9 * static_cast<double>(outcome->host_bytes.count) * profile.pin_ns_per_byte;
  }

  /// One policy under all budgets.
  std::vector<FidelityCell> cells_of(const std::string& policy) const {
    const Budget least{kAllocationUnit, profile.host_memory};
    const auto floor =
        smallest_budget(subject.trace, profile, {.policy = policy, .budget = least}, predict);
    std::vector<FidelityCell> cells;
    for (const std::string& budget : budgets) {
      FidelityCell& cell = cells.emplace_back(FidelityCell{.policy = policy, .budget = budget});
      cell.bytes = bytes_of(budget, floor ? floor->budget : kAllocationUnit);
      finish(cell, floor ? under_budget(policy, cell.bytes, *floor) : Result<Plan>(floor.error()));
    }
    return cells;
  }
};

}  // namespace

Result<Subject> subject_of(Trace trace, const DeviceProfile& profile) {
  Subject subject{.trace = std::move(trace)};
  subject.hash = trace_hash(subject.trace);
  const auto plan = make_plan(subject.trace, profile,
                              {.policy = "liveness", .budget = {Bytes{std::int64_t{1} << 60}, {}}},
                              predictor(subject.trace, profile));
  if (!plan) return plan.error();
  const auto peak = smallest_arena(subject.trace, *plan);
  if (!peak) return peak.error();
  subject.liveness_peak = *peak;
  return subject;
}

Status check_budgets(const std::vector<std::string>& budgets) {
  for (const std::string& budget : budgets)
    if (budget != "floor" && budget != "max" && !percent_of(budget))
      return Error{.code = ErrorCode::bad_usage,
                   .message = fmt::format(
                       "--budgets {}: a budget is a percentage (80), floor or max", budget)};
  return Ok{};
}

std::vector<FidelityCell> plan_cells(const Subject& subject, const DeviceProfile& profile,
                                     const std::vector<std::string>& policies,
                                     const std::vector<std::string>& budgets, int steps) {
  const Planning planning{subject, profile, budgets, steps, predictor(subject.trace, profile)};
  std::vector<std::vector<FidelityCell>> rows(policies.size());
  std::atomic<std::size_t> next{0};
  std::vector<std::thread> workers;
  const std::size_t most = std::max(std::thread::hardware_concurrency(), 1U);
  for (std::size_t i = 0; i < std::min(most, policies.size()); ++i)
    workers.emplace_back([&] {
      for (std::size_t policy = next++; policy < policies.size(); policy = next++)
        rows[policy] = planning.cells_of(policies[policy]);
    });
  for (std::thread& worker : workers) worker.join();
  std::vector<FidelityCell> cells;
  for (std::vector<FidelityCell>& row : rows)
    for (FidelityCell& cell : row) cells.push_back(std::move(cell));
  return cells;
}

}  // namespace superneurons
