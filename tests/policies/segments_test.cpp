// Segments between checkpoints, and what decides whether one is made again once.
#include "policies/segments.h"

#include <gtest/gtest.h>

#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

// The example of policies/segments.h: a is kept; p, q and r are dropped. u is a segment of its own:
// its source is the sum that joins the branches.
const char* kBranches = R"(
  tensor x 4K input carry
  tensor a 4K activation
  tensor p 4K activation
  tensor q 4K activation
  tensor r 4K activation
  tensor c 4K activation
  tensor u 4K activation
  tensor dc 4K activation_gradient
  tensor dr 4K activation_gradient
  tensor dq 4K activation_gradient
  tensor dp 4K activation_gradient
  tensor da 4K activation_gradient
  op conv forward : x -> a
  op p forward : a -> p
  op q forward : p -> q
  op r forward : q -> r
  op join forward : r a -> c
  op u forward : c -> u
  op loss forward : u -> dc
  op ub backward : c u dc -> dc
  op joinb backward : dc -> dr
  op rb backward : q r dr -> dq
  op qb backward : p q dq -> dp
  op pb backward : a p dp -> da
)";

struct Found {
  std::vector<std::string> drops;
  Segments segments;
};

Found find(const Trace& trace, LayerPeak measure) {
  const Dataflow flow = analyze(trace);
  const DeviceProfile profile;
  const PolicyContext context{trace, flow, profile, {1_GiB, 0_B}, {}, {}, false, nullptr};
  const Plan plan = keep_all_plan(trace);
  std::vector<bool> may_rerun;
  for (const Op& op : trace.ops)
    may_rerun.push_back(op.phase == Phase::forward && op.name.size() == 1);
  std::vector<Idle> drops = idle_into_backward(context, plan);
  std::erase_if(drops, [&](const Idle& idle) { return !may_rerun[plan.steps[idle.made].subject]; });
  Found found;
  for (const Idle& idle : drops) found.drops.push_back(trace[idle.tensor].name);
  found.segments = find_segments(context, plan, drops, may_rerun, measure);
  return found;
}

TEST(Segments, LieBetweenCheckpointsAndWeighWhatIsLive) {
  const Found found = find(mini(kBranches), LayerPeak::held);
  ASSERT_EQ(found.drops, (std::vector<std::string>{"p", "q", "r", "u"}));
  EXPECT_EQ(found.segments.of, (std::vector<std::uint32_t>{0, 0, 0, 1}));
  ASSERT_EQ(found.segments.live.size(), 2U);
  EXPECT_EQ(found.segments.live[0], 24_KiB);  // a p q r dr dq
  EXPECT_EQ(found.segments.live[1], 12_KiB);  // c u dc
  EXPECT_EQ(found.segments.layer_peak, 20_KiB);
}

TEST(Segments, TheLargestLayerIsMeasuredInThreeWays) {
  EXPECT_EQ(find(mini(kBranches), LayerPeak::distinct).segments.layer_peak, 16_KiB);
  EXPECT_EQ(find(mini(kBranches), LayerPeak::aliased).segments.layer_peak, 16_KiB);
  Trace in_place = mini(kBranches);
  in_place.tensors[6].bytes = in_place.tensors[7].bytes = 8_KiB;  // u and dc, in place
  access_whole_tensors(in_place);
  EXPECT_EQ(find(in_place, LayerPeak::distinct).segments.layer_peak, 20_KiB);
  EXPECT_EQ(find(in_place, LayerPeak::aliased).segments.layer_peak, 28_KiB);
}

TEST(Segments, WorkspacesCount) {
  Trace trace = mini(kBranches);
  trace.ops[9].choices[0].workspace = 100_KiB;  // rb
  const Segments segments = find(trace, LayerPeak::held).segments;
  EXPECT_EQ(segments.live[0], 124_KiB);
  EXPECT_EQ(segments.layer_peak, 120_KiB);
}

}  // namespace
}  // namespace superneurons
