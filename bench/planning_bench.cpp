// Speed from file to plan: a 100,000-op trace is loaded, planned by liveness, checked and placed;
// ResNet-2500 is recomputed.
#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include "ir/check.h"
#include "ir/trace_io.h"
#include "memory/placement.h"
#include "networks/network.h"
#include "policies/passes.h"
#include "policies/policy.h"
#include "simulator/outcome.h"

namespace superneurons {
namespace {

/// A chain of `ops` ops forward and back: each reads its input and a parameter and writes an
/// output; the backward half reads what forward kept.
Trace chain(std::uint32_t ops) {
  Trace trace;
  trace.name = "chain";
  trace.capabilities.fill(Capability::exact);
  const auto tensor = [&](const char* prefix, std::uint32_t i, Role role) {
    trace.tensors.push_back({.name = prefix + std::to_string(i),
                             .bytes = {4096 + 512 * (i % 7)},
                             .layer = "layer" + std::to_string(i),
                             .role = role});
    return TensorId{static_cast<std::uint32_t>(trace.tensors.size() - 1)};
  };
  const auto whole = [&](TensorId id) { return Access{id, {}, trace[id].bytes}; };
  const auto op = [&](const char* kind, std::uint32_t i, Phase phase, std::vector<Access> reads,
                      std::vector<Access> writes) {
    trace.ops.push_back({.name = kind + std::to_string(i),
                         .kind = kind,
                         .phase = phase,
                         .layer = "layer" + std::to_string(i),
                         .reads = std::move(reads),
                         .writes = std::move(writes),
                         .choices = {{.workspace = {1024}, .ns = {10'000}}},
                         .kernels = {{"some_kernel_name", {10'000}}}});
  };
  const std::uint32_t layers = ops / 2;
  std::vector<TensorId> value{tensor("x", 0, Role::input)}, weight;
  trace.carry.push_back({value[0], value[0]});
  for (std::uint32_t i = 0; i < layers; ++i) {
    if (i % 8 == 0) {
      weight.push_back(tensor("w", i, Role::parameter));
      trace.carry.push_back({weight.back(), weight.back()});
    }
    value.push_back(tensor("y", i + 1, Role::activation));
    op("forward", i, Phase::forward, {whole(value[i]), whole(weight.back())},
       {whole(value[i + 1])});
  }
  TensorId gradient = value.back();
  for (std::uint32_t i = layers; i-- > 0;) {
    const TensorId next = tensor("g", i, Role::activation_gradient);
    op("backward", i, Phase::backward,
       {whole(value[i]), whole(value[i + 1]), whole(gradient), whole(weight[i / 8])},
       {whole(next)});
    gradient = next;
  }
  return trace;
}

Result<Prediction> no_prediction(const Plan&) { return Prediction{}; }

void load_100k_ops(benchmark::State& state) {
  const std::string text = format_trace(chain(100'000));
  for (auto _ : state) benchmark::DoNotOptimize(parse_trace(text, "memory"));
  state.counters["MB"] = static_cast<double>(text.size()) / 1e6;
}
BENCHMARK(load_100k_ops)->Unit(benchmark::kMillisecond);

void plan_check_place_100k_ops(benchmark::State& state) {
  const Trace trace = chain(100'000);
  const DeviceProfile profile;
  for (auto _ : state) {
    const auto plan = make_plan(
        trace, profile, {.policy = "liveness", .budget = {Bytes{std::int64_t{1} << 50}, {}}},
        no_prediction);
    if (!plan || check(trace, *plan) || !place(trace, *plan, plan->budget.device))
      return state.SkipWithError("no plan");
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  state.counters["peak_MB"] = static_cast<double>(usage.ru_maxrss) / 1e3;
}
BENCHMARK(plan_check_place_100k_ops)->Unit(benchmark::kMillisecond);

/// The pass alone, on a liveness plan of ResNet-2500: everything dropped that can be.
void recompute_resnet2500(benchmark::State& state, const char* strategy) {
  const Result<Network> net = find_network("resnet2500");
  const Result<Trace> trace = lower(*net, {.batch = 16, .lowering = Lowering::paper});
  const DeviceProfile profile;
  const Budget room{Bytes{std::int64_t{1} << 50}, {}};
  PlanRequest request{.policy = "liveness", .budget = room};
  const Result<Plan> incoming = make_plan(*trace, profile, request, no_prediction);
  if (!incoming) return state.SkipWithError("no plan");
  const Dataflow flow = analyze(*trace);
  PolicyContext context{*trace, flow, profile, room, no_prediction, {}, false, nullptr};
  for (const PolicyEntry& entry : policies())
    if (entry.name == "recompute")
      for (const OptionEntry& option : entry.options)
        context.options[std::string(option.name)] = option.fallback;
  context.options["strategy"] = strategy;
  context.options["need"] = "all";
  for (auto _ : state) benchmark::DoNotOptimize(recompute(context, *incoming));
  state.counters["ops"] = static_cast<double>(trace->ops.size());
}
BENCHMARK_CAPTURE(recompute_resnet2500, speed, "speed")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(recompute_resnet2500, memory, "memory")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(recompute_resnet2500, cost_aware, "cost_aware")->Unit(benchmark::kMillisecond);

/// From trace to plan under a budget that everything droppable just meets: the search for the
/// fewest drops, checks and placements included.
void plan_recompute_resnet2500(benchmark::State& state) {
  const Result<Network> net = find_network("resnet2500");
  const Result<Trace> trace = lower(*net, {.batch = 16, .lowering = Lowering::paper});
  const DeviceProfile profile;
  PlanRequest request{.policy = "liveness+recompute:need=all",
                      .budget = {Bytes{std::int64_t{1} << 50}, {}}};
  const Result<Plan> all = make_plan(*trace, profile, request, no_prediction);
  if (!all) return state.SkipWithError("no plan");
  request.policy = "liveness_recompute";
  request.budget.device = {smallest_arena(*trace, *all)->count * 11 / 10};
  for (auto _ : state)
    if (!make_plan(*trace, profile, request, no_prediction)) state.SkipWithError("no plan");
}
BENCHMARK(plan_recompute_resnet2500)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace superneurons
