// ResNet-2500 (26,677 ops) at batch 16 into 12 GiB: how long each composition plans, how long the
// simulator takes for what it planned, and how much memory that needs, on one core.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/data_sheet.h"
#include "ir/check.h"
#include "memory/placement.h"
#include "networks/network.h"
#include "policies/policy.h"
#include "simulator/model_backend.h"
#include "simulator/outcome.h"

namespace superneurons {
namespace {

const Trace& resnet2500() {
  static const Trace trace = [] {
    Result<Trace> made = lower(resnet(6, 32, 788, 6), {.batch = 16, .updates = Updates::arrive});
    if (!made) std::exit(1);
    estimate_durations(*made, data_sheet());
    return *std::move(made);
  }();
  return trace;
}

Result<Plan> plan_for(const std::string& policy) {
  static const DeviceProfile profile = data_sheet();
  const PlanRequest request{.policy = policy, .budget = {12_GiB, 100_GiB}, .seek_floor = false};
  return make_plan(resnet2500(), profile, request, predictor(resnet2500(), profile));
}

void note_memory(benchmark::State& state) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MB"] = static_cast<double>(usage.ru_maxrss) / 1e3;
}

void plan_resnet2500(benchmark::State& state, const std::string& policy) {
  bool fits = false;
  for (auto _ : state) {
    const Result<Plan> plan = plan_for(policy);
    if (!plan && plan.error().code != ErrorCode::does_not_fit)
      return state.SkipWithError(plan.error().message.c_str());
    fits = static_cast<bool>(plan);
  }
  state.counters["fits"] = fits;
  note_memory(state);
}

constexpr const char* kFits = "liveness+recompute+offload:layers=all";

void simulate_resnet2500(benchmark::State& state) {
  const DeviceProfile profile = data_sheet();
  const Result<Plan> plan = plan_for(kFits);
  if (!plan) return state.SkipWithError(plan.error().message.c_str());
  for (auto _ : state) benchmark::DoNotOptimize(simulate(resnet2500(), *plan, profile, {}));
  state.counters["plan_steps"] = static_cast<double>(plan->steps.size());
  note_memory(state);
}
BENCHMARK(simulate_resnet2500)->Unit(benchmark::kMillisecond);

/// What a policy's search asks again and again.
void fits_resnet2500(benchmark::State& state) {
  const Result<Plan> plan = plan_for(kFits);
  if (!plan) return state.SkipWithError(plan.error().message.c_str());
  for (auto _ : state) benchmark::DoNotOptimize(fits(resnet2500(), *plan, 12_GiB));
}
BENCHMARK(fits_resnet2500)->Unit(benchmark::kMillisecond);

void check_resnet2500(benchmark::State& state) {
  const Result<Plan> plan = plan_for(kFits);
  if (!plan) return state.SkipWithError(plan.error().message.c_str());
  for (auto _ : state) benchmark::DoNotOptimize(check(resnet2500(), *plan));
}
BENCHMARK(check_resnet2500)->Unit(benchmark::kMillisecond);

const int registered = [] {
  std::vector<std::string> names = {"liveness", kFits,
                                    "liveness+recompute:need=all+offload:layers=all,need=all"};
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  for (const std::string& name : names)
    benchmark::RegisterBenchmark(("plan_resnet2500/" + name).c_str(), plan_resnet2500, name)
        ->Unit(benchmark::kMillisecond)
        ->Iterations(1);
  return 0;
}();

}  // namespace
}  // namespace superneurons
