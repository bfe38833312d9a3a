// Simulator speed, in plan steps a second on one core: ResNet-152 of batch 32, every activation
// that backward reads offloaded and prefetched. The aim is 1 M plan steps a second.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "bench/data_sheet.h"
#include "ir/check.h"
#include "ir/dataflow.h"
#include "networks/network.h"
#include "simulator/execute.h"
#include "simulator/model_backend.h"
#include "simulator/outcome.h"

namespace superneurons {
namespace {

Trace resnet152() {
  Result<Network> net = find_network("resnet152");
  Result<Trace> trace = net ? lower(*net, {.batch = 32}) : Result<Trace>(net.error());
  if (!trace) {
    std::fprintf(stderr, "resnet152: %s\n", trace.error().message.c_str());
    std::exit(1);
  }
  estimate_durations(*trace, data_sheet());
  return std::move(*trace);
}

/// Frees everything after its last use, and sends each activation that is idle for at least
/// `kIdle` ops to the host in between.
Plan offload_plan(const Trace& trace) {
  constexpr std::uint32_t kIdle = 8, kAhead = 4;
  const Dataflow flow = analyze(trace);
  std::vector<std::vector<PlanStep>> before(trace.ops.size()), after(trace.ops.size());
  Plan plan = keep_all_plan(trace);
  plan.policy = "offload every idle activation";
  plan.budget = {Bytes{std::int64_t{1} << 40}, Bytes{std::int64_t{1} << 40}};
  for (std::size_t step = trace.ops.size(); step < plan.steps.size(); ++step) {
    const TensorId id = plan.steps[step].tensor();
    const TensorFlow& tensor = flow[id];
    const std::uint32_t last = tensor.users.back().index;
    after[last].push_back(tensor_step(StepKind::free, id));
    if (trace[id].role != Role::activation || tensor.makers.back() != tensor.makers.front())
      continue;
    for (std::size_t use = 1; use < tensor.users.size(); ++use) {
      const std::uint32_t from = tensor.users[use - 1].index, to = tensor.users[use].index;
      if (to - from < kIdle) continue;
      after[from].push_back(tensor_step(StepKind::offload, id));
      after[from + 2].push_back(tensor_step(StepKind::free, id));
      before[to - kAhead].push_back(tensor_step(StepKind::prefetch, id));
      after[last].push_back(tensor_step(StepKind::free_host, id));
      break;
    }
  }
  plan.steps.clear();
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) {
    plan.steps.insert(plan.steps.end(), before[op].begin(), before[op].end());
    plan.steps.push_back(run_step({op}, trace.ops[op].recorded));
    plan.steps.insert(plan.steps.end(), after[op].begin(), after[op].end());
  }
  return plan;
}

struct Given {
  Trace trace = resnet152();
  DeviceProfile profile = data_sheet();
  Plan plan = offload_plan(trace);
  Placement placement;
  Program program;

  Given() {
    if (const auto violation = check(trace, plan)) stop(to_error(*violation));
    Result<Placement> placed = place(trace, plan, plan.budget.device);
    if (!placed) stop(placed.error());
    placement = std::move(*placed);
    program = build_program(trace, plan, placement);
  }
  [[noreturn]] static void stop(const Error& error) {
    std::fprintf(stderr, "%s\n", error.message.c_str());
    std::exit(1);
  }
};

const Given& given() {
  static const Given instance;
  return instance;
}

void count(benchmark::State& state, std::int64_t training_steps) {
  const auto steps = static_cast<std::int64_t>(given().plan.steps.size());
  state.counters["plan_steps"] = static_cast<double>(steps);
  state.counters["copies"] = static_cast<double>(
      std::count_if(given().program.commands.begin(), given().program.commands.end(),
                    [](const Command& command) { return command.stream != Stream::compute; }));
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * steps * training_steps);
}

/// The driver and the model backend alone; items are plan steps executed.
void execute_on_model(benchmark::State& state) {
  const Given& on = given();
  for (auto _ : state) {
    const auto model = make_model_backend(on.profile);
    if (!execute(on.trace, on.program, *model, {.training_steps = 3}))
      state.SkipWithError("failed");
    benchmark::DoNotOptimize(model->timeline());
  }
  count(state, 3);
}
BENCHMARK(execute_on_model);

/// Plan and placement to commands and waits, both tables; items are plan steps.
void build(benchmark::State& state) {
  const Given& on = given();
  for (auto _ : state)
    benchmark::DoNotOptimize(build_program(on.trace, on.plan, on.placement).events);
  count(state, 1);
}
BENCHMARK(build);

/// Both, as a policy's search would; items are plan steps executed.
void build_and_execute(benchmark::State& state) {
  const Given& on = given();
  for (auto _ : state) {
    const Program program = build_program(on.trace, on.plan, on.placement);
    benchmark::DoNotOptimize(simulate_program(on.trace, program, on.profile));
  }
  count(state, 3);
}
BENCHMARK(build_and_execute);

/// Check, placement, program and execution; items are plan steps executed.
void simulate_plan(benchmark::State& state) {
  const Given& on = given();
  for (auto _ : state) benchmark::DoNotOptimize(simulate(on.trace, on.plan, on.profile));
  count(state, 3);
}
BENCHMARK(simulate_plan);

void bound(benchmark::State& state) {
  const Given& on = given();
  for (auto _ : state)
    benchmark::DoNotOptimize(
        time_bound(on.trace, on.profile, {on.placement.placed_peak, on.placement.host_peak}));
}
BENCHMARK(bound);

}  // namespace
}  // namespace superneurons
