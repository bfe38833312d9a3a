// Parameters updated as their gradients arrive: the same arithmetic as at the end, less memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "ir/dataflow.h"
#include "networks/network.h"
#include "replay/reference.h"
#include "replay/replay.h"

namespace superneurons {
namespace {

Trace small_network(Lowering lowering, Updates updates) {
  return *lower(*find_network("small_cnn"),
                {.batch = 4, .lowering = lowering, .updates = updates, .rate = 0.05});
}

/// By tensor name, as the two traces number their tensors differently.
std::map<std::string, std::uint64_t> trained(const Trace& trace, std::vector<float>& losses) {
  const Plan plan = reference_plan(trace, keep_all_plan(trace));
  const Result<Run> run = run_plan(trace, plan, {.training_steps = 4});
  EXPECT_TRUE(run) << (run ? "" : run.error().message);
  std::map<std::string, std::uint64_t> values;
  if (!run) return values;
  losses = run->losses;
  for (std::size_t i = 0; i < run->checksums.tensors.size(); ++i)
    values[trace[run->checksums.tensors[i]].name] = run->checksums.values[i];
  return values;
}

class Arriving : public testing::TestWithParam<Lowering> {};

TEST_P(Arriving, TrainsToTheSameBitsAsUpdatesAtTheEnd) {
  std::vector<float> losses_at_end, losses_arriving;
  const auto at_end = trained(small_network(GetParam(), Updates::end), losses_at_end);
  const auto arriving = trained(small_network(GetParam(), Updates::arrive), losses_arriving);
  EXPECT_GT(at_end.size(), 10U);
  EXPECT_EQ(at_end, arriving);
  EXPECT_EQ(losses_at_end, losses_arriving);
  ASSERT_EQ(losses_at_end.size(), 4U);
  EXPECT_NE(losses_at_end[0], losses_at_end[3]);
}

TEST_P(Arriving, UpdatesRightAfterTheLayersBackward) {
  const Trace trace = small_network(GetParam(), Updates::arrive);
  const Dataflow flow = analyze(trace);
  std::size_t updates = 0;
  for (std::uint32_t i = 0; i < trace.ops.size(); ++i) {
    if (trace.ops[i].phase != Phase::update) continue;
    ++updates;
    const TensorId gradient = trace.ops[i].reads[1].tensor;
    ASSERT_EQ(trace[gradient].role, Role::gradient);
    EXPECT_EQ(trace[gradient].freed_before, OpId{i + 1});
    // No two layers' gradients live at once.
    for (std::uint32_t j = flow[gradient].makers[0].index; j < i; ++j)
      for (const Access& write : trace.ops[j].writes)
        EXPECT_TRUE(trace[write.tensor].role != Role::gradient ||
                    trace.ops[j].layer == trace.ops[i].layer)
            << trace.ops[i].name;
  }
  const auto parameters = std::count_if(trace.tensors.begin(), trace.tensors.end(),
                                        [](const Tensor& t) { return t.role == Role::parameter; });
  EXPECT_EQ(updates, static_cast<std::size_t>(parameters));
}

INSTANTIATE_TEST_SUITE_P(Lowerings, Arriving, testing::Values(Lowering::native, Lowering::paper),
                         [](const auto& tested) {
                           return std::string(tested.param == Lowering::native ? "native"
                                                                               : "paper");
                         });

}  // namespace
}  // namespace superneurons
