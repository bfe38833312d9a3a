// Speed of the liveness analysis and of the execution route on deep networks: both are linear.
#include <benchmark/benchmark.h>

#include "ir/live_sets.h"
#include "networks/network.h"
#include "networks/route.h"

namespace superneurons {
namespace {

/// A ResNet of about so many layers; a bottleneck has 10 or 11.
Network deep(std::int64_t layers) {
  const std::int64_t blocks = layers / 40;
  return resnet(blocks, blocks, blocks, blocks);
}

void count_layers(benchmark::State& state, const Network& net) {
  state.counters["layers"] = static_cast<double>(net.layers.size());
}

void live_sets_of_layers(benchmark::State& state) {
  const Network net = deep(state.range(0));
  const Result<Trace> trace = lower(net, {});
  if (!trace) return state.SkipWithError("does not lower");
  const Dataflow flow = analyze(*trace);
  for (auto _ : state)
    benchmark::DoNotOptimize(live_sets(*trace, flow, layer_steps(*trace), kAllRoles));
  count_layers(state, net);
  state.counters["ops"] = static_cast<double>(trace->ops.size());
}
BENCHMARK(live_sets_of_layers)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

void dataflow_and_live_sets_of_layers(benchmark::State& state) {
  const Network net = deep(state.range(0));
  const Result<Trace> trace = lower(net, {});
  if (!trace) return state.SkipWithError("does not lower");
  for (auto _ : state)
    benchmark::DoNotOptimize(live_sets(*trace, analyze(*trace), layer_steps(*trace), kAllRoles));
  count_layers(state, net);
  state.counters["ops"] = static_cast<double>(trace->ops.size());
}
BENCHMARK(dataflow_and_live_sets_of_layers)
    ->Arg(10'000)
    ->Arg(100'000)
    ->Unit(benchmark::kMillisecond);

void routes_of_layers(benchmark::State& state) {
  const Network net = deep(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(layer_orders(net, LayerOrder::route));
  count_layers(state, net);
}
BENCHMARK(routes_of_layers)->Arg(10'000)->Arg(100'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace superneurons
