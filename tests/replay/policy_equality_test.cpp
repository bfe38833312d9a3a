// Every policy and composition of the registry: under every budget that it fits, the plan replays
// to the bits of its reference, in an arena of exactly the budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "memory/placement.h"
#include "networks/network.h"
#include "policies/policy.h"
#include "replay/host_choices.h"
#include "replay/reference.h"
#include "replay/replay.h"
#include "simulator/outcome.h"
#include "tests/cases.h"
#include "tests/random_trace.h"
#include "tests/replay/registered.h"
#include "tests/small_networks.h"
#include "tests/torch_shapes.h"

namespace superneurons {
namespace {

Result<Plan> plan_for(const Trace& trace, const PlanRequest& request) {
  const DeviceProfile profile = slow_link();
  return make_plan(trace, profile, request, predictor(trace, profile));
}

struct NamedTrace {
  std::string name;
  Trace trace;
  std::vector<KernelSet> kernels;
  std::vector<int> budgets = {0, 100, 70, 85, 55, 40};  // percent of the liveness peak; 0: endless
};

Trace costed(const Network& net, std::int64_t batch, Lowering lowering) {
  Trace trace = *lower(net, {.batch = batch, .lowering = lowering});
  EXPECT_TRUE(enumerate_host_choices(trace, 1_MiB, true));
  estimate_durations(trace, slow_link());
  return trace;
}

std::vector<NamedTrace> traces() {
  std::vector<NamedTrace> all;
  for (const Lowering lowering : {Lowering::native, Lowering::paper}) {
    Trace trace = costed(*find_network("small_cnn"), 2, lowering);
    const char* name = lowering == Lowering::native ? "small_cnn" : "small_cnn as in the paper";
    all.push_back({name, std::move(trace), {KernelSet::native, KernelSet::verify}});
  }
  all.push_back({"small_inception",
                 costed(small_inception(), 2, Lowering::native),
                 {KernelSet::native},
                 {75}});
  all.push_back(
      {"small_densenet", costed(small_densenet(), 2, Lowering::paper), {KernelSet::native}, {75}});
  for (std::uint64_t seed = 1; seed <= (kSanitized ? 2 : 6); ++seed)
    all.push_back({"random " + std::to_string(seed),
                   random_trace(seed, {.layers = 10, .largest = 8_KiB}),
                   {KernelSet::verify}});
  for (TorchShape& shape : torch_shapes())
    all.push_back({shape.name, std::move(shape.trace), {KernelSet::verify}, {100, 60}});
  return all;
}

std::string compare(const Trace& trace, const Plan& plan, KernelSet kernels, bool stress) {
  ReplayOptions options;
  options.kernels = kernels;
  const auto reference = run_plan(trace, reference_plan(trace, plan), options);
  if (!reference) return "reference: " + reference.error().message;
  options.stress = stress;
  const auto run = run_plan(trace, plan, options);
  if (!run) return run.error().message;
  if (run->measured.peak > plan.budget.device) return "over the budget";
  return difference(trace, reference->checksums, run->checksums);
}

class EveryPolicy : public testing::TestWithParam<std::string> {};

TEST_P(EveryPolicy, replays_to_the_bits_of_its_reference_under_every_budget_it_fits) {
  for (const auto& [name, trace, kernel_sets, budgets] : traces()) {
    PlanRequest request;
    request.policy = GetParam();
    request.budget = {1_GiB, 1_GiB};
    const Result<Plan> roomy = plan_for(trace, request);
    ASSERT_TRUE(roomy) << name << ": " << roomy.error().message;
    PlanRequest freed = request;
    freed.policy = "liveness";
    const Result<Plan> liveness = plan_for(trace, freed);
    ASSERT_TRUE(liveness);
    const Bytes peak = *smallest_arena(trace, *liveness);
    int fits = budgets.front() > 0;  // it fitted above
    for (const int percent : some_of(budgets)) {
      if (percent > 0) request.budget.device = {peak.count * percent / 100};
      const Result<Plan> plan = plan_for(trace, request);
      if (!plan) {
        ASSERT_EQ(plan.error().code, ErrorCode::does_not_fit) << plan.error().message;
        continue;
      }
      ++fits;
      for (const KernelSet kernels : kernel_sets)
        EXPECT_EQ(compare(trace, *plan, kernels, percent % 2 == 1), "")
            << name << " at " << percent << " %";
    }
    EXPECT_GE(fits, 1) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryPolicy, testing::ValuesIn(registered()),
                         [](const auto& row) { return row.param; });

}  // namespace
}  // namespace superneurons
