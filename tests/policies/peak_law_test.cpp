// The peak law: the passes that it is stated for need no more than the inequality of
// policies/peak_law.h says, on the paper's lowering of every network and of random ones; nor does
// the policy `superneurons` where memory is short.
#include "policies/peak_law.h"

#include <gtest/gtest.h>

#include "memory/layer_steps.h"
#include "networks/models.h"
#include "policies/policy.h"
#include "tests/networks/random_network.h"

namespace superneurons {
namespace {

constexpr Bytes kRoom{std::int64_t{1} << 50};

double mebibytes(Bytes bytes) { return static_cast<double>(bytes.count) / (1 << 20); }

/// All of cheap layers is made again and all else leaves, whatever its size.
Bytes peak_of_the_passes(const Trace& trace, const char* strategy, std::uint32_t lookahead) {
  PlanRequest request;
  request.policy =
      std::string("liveness+recompute:need=all,saved=keep,min=1,strategy=") + strategy +
      "+offload:layers=all,need=all,free=early,min=1,lookahead=" + std::to_string(lookahead) +
      "layers";
  request.budget = {kRoom, kRoom};
  const Result<Plan> plan = make_plan(trace, DeviceProfile{}, request, {});
  EXPECT_TRUE(plan) << trace.name << ": " << plan.error().message;
  return plan ? scope_peak(trace, *plan) : kRoom;
}

void expect_law(const Network& net, std::int64_t batch) {
  const Trace trace = *lower(net, {.batch = batch, .lowering = Lowering::paper});
  const Dataflow flow = analyze(trace);
  for (const std::uint32_t lookahead : {0U, 1U, 3U}) {
    const PeakLaw law = peak_law(trace, flow, lookahead);
    EXPECT_GE(law.step, law.layer);
    for (const char* strategy : {"memory", "cost_aware"}) {
      const Bytes peak = peak_of_the_passes(trace, strategy, lookahead);
      EXPECT_LE(peak, law.bound())
          << trace.name << ", " << strategy << ", look-ahead " << lookahead;
    }
  }
}

TEST(PeakLaw, HoldsForEveryNetwork) {
  for (const NetworkEntry& entry : networks()) {
    const Network net = entry.make();
    if (net.layers.size() < 4000) expect_law(net, 2);  // the deepest ResNets repeat their blocks
  }
}

TEST(PeakLaw, HoldsForRandomNetworks) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE(seed);
    expect_law(random_network(seed), 2);
  }
}

// The paper's claim is peak = max l_i. What it misses is told apart.
TEST(PeakLaw, IsTightForAlexNet) {
  const Trace trace = *lower(alexnet(), {.batch = 200, .lowering = Lowering::paper});
  const PeakLaw law = peak_law(trace, analyze(trace), 0);
  EXPECT_NEAR(mebibytes(law.layer), 664.673, 0.001);
  EXPECT_NEAR(mebibytes(law.step), 886.230, 0.001);  // with CONV1 held for RELU1
  EXPECT_EQ(trace[law.step_op].name, "lrn1.backward");
  EXPECT_EQ(law.bound(), law.step);
  EXPECT_EQ(peak_of_the_passes(trace, "cost_aware", 0), law.bound());
}

// With memory to spare it drops and moves nothing, so that the law binds it at its floor only:
// where tensors are larger than the allocator's blocks, by which floors are found.
TEST(PeakLaw, BindsTheRegisteredPolicyAtItsFloor) {
  for (const char* name : {"small_cnn", "digits_resnet", "alexnet", "resnet:2,1,3,1"}) {
    SCOPED_TRACE(name);
    const Trace trace = *lower(*find_network(name), {.batch = 16, .lowering = Lowering::paper});
    PlanRequest request;
    request.policy = "superneurons";
    request.budget = {kRoom, kRoom};
    const Result<Floor> floor = smallest_budget(trace, DeviceProfile{}, request, {});
    ASSERT_TRUE(floor);
    const PeakLaw law = peak_law(trace, analyze(trace), 3);
    const Result<Plan> loose = make_plan(trace, DeviceProfile{}, request, {});
    request.budget.device = floor->budget;
    const Result<Plan> tight = make_plan(trace, DeviceProfile{}, request, {});
    ASSERT_TRUE(loose && tight);
    EXPECT_LE(scope_peak(trace, *tight), law.bound());
    EXPECT_LT(scope_peak(trace, *tight), scope_peak(trace, *loose));
  }
}

TEST(PeakLaw, CountsWhatComesEarlyAndWhatWaits) {
  const Trace trace = *lower(resnet(3, 4, 6, 3), {.batch = 32, .lowering = Lowering::paper});
  const Dataflow flow = analyze(trace);
  const PeakLaw none = peak_law(trace, flow, 0), three = peak_law(trace, flow, 3);
  EXPECT_EQ(none.prefetched, 0_B);
  EXPECT_GT(none.waiting, 0_B);  // an identity branch, while the other one runs
  EXPECT_GT(three.prefetched, 0_B);
  EXPECT_EQ(three.layer, none.layer);
  EXPECT_EQ(three.step, none.step);
}

}  // namespace
}  // namespace superneurons
