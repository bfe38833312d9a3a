// Recording a network that does not fit under keep_all.
#include "tracer/record.h"

#include <gtest/gtest.h>

#include "memory/placement.h"
#include "networks/network.h"
#include "policies/policy.h"
#include "simulator/outcome.h"

namespace superneurons {
namespace {

Trace network() { return *lower(*find_network("small_cnn"), {.batch = 4}); }

DeviceProfile any_device() {
  DeviceProfile profile;
  profile.host_memory = 1_GiB;
  profile.offload.points = profile.prefetch.points = {{1_B, 10_ns}};
  profile.offload.bytes_per_ns = profile.prefetch.bytes_per_ns = 1;
  profile.flops_per_ns = profile.memory_bytes_per_ns = 1;
  return profile;
}

RecordFallback fallback(const std::string& policy) {
  return {policy, [policy](const Trace& trace, Bytes memory) {
            const DeviceProfile profile = any_device();
            Trace costed = trace;
            estimate_durations(costed, profile);
            return make_plan(costed, profile,
                             {.policy = policy, .budget = {memory, profile.host_memory}},
                             predictor(costed, profile));
          }};
}

Result<Trace> recorded(Bytes memory, const std::vector<std::string>& policies,
                       bool choices = true) {
  RecordOptions options;
  options.warmup_steps = options.traced_steps = options.untraced_steps = 1;
  options.choices = choices;
  options.device_memory = memory;
  for (const std::string& policy : policies) options.fallbacks.push_back(fallback(policy));
  options.origin = "a test";
  return record(network(), options);
}

Bytes floor_of(const std::string& policy) {
  const DeviceProfile profile = any_device();
  Trace trace = network();
  estimate_durations(trace, profile);
  const auto floor = smallest_budget(trace, profile, {.policy = policy, .budget = {1_GiB, 1_GiB}},
                                     predictor(trace, profile));
  EXPECT_TRUE(floor) << floor.error().message;
  return floor ? floor->budget : Bytes{};
}

TEST(Record, KeepsAllWhereThatFits) {
  const auto trace = recorded(64_MiB, {"liveness"});
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->origin, "a test");
  std::size_t most = 0;
  for (const Op& op : trace->ops) {
    most = std::max(most, op.choices.size());
    for (const Choice& choice : op.choices) EXPECT_GT(choice.ns, 0_ns) << op.name;
  }
  EXPECT_GT(most, 1U);
}

TEST(Record, TakesTheFirstPolicyThatFits) {
  const Bytes liveness = floor_of("liveness"), keep_all = floor_of("keep_all");
  ASSERT_LT(liveness, keep_all);
  const auto trace = recorded({(liveness.count + keep_all.count) / 2}, {"liveness"});
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_NE(trace->origin.find("recorded under liveness in"), std::string::npos) << trace->origin;
  EXPECT_FALSE(find_fault(*trace));
  for (const Op& op : trace->ops) EXPECT_GT(op.choices[op.recorded].ns, 0_ns) << op.name;
}

TEST(Record, MeasuresFirstRunsUnderPoliciesThatRunOpsAgain) {
  const Bytes floor = floor_of("recompute_offload");
  ASSERT_LT(floor, floor_of("liveness"));
  const auto trace = recorded(floor, {"liveness", "recompute_offload"}, false);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_NE(trace->origin.find("recorded under recompute_offload in"), std::string::npos);
  for (const Op& op : trace->ops) EXPECT_GT(op.choices[op.recorded].ns, 0_ns) << op.name;
}

TEST(Record, LeavesOutChoicesThatHaveNoRoom) {
  const auto trace = recorded(floor_of("keep_all"), {});  // nothing is left for IM2COL
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_NE(trace->origin.find("do not fit and are left out"), std::string::npos) << trace->origin;
  for (const Op& op : trace->ops) EXPECT_EQ(op.choices.size(), 1U) << op.name;
}

TEST(Record, SaysWhatDoesNotFit) {
  const auto none = recorded(64_KiB, {});
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, ErrorCode::does_not_fit);
  EXPECT_NE(none.error().message.find("small_cnn-b4 does not fit 64 KiB of device memory without a "
                                      "policy: "),
            std::string::npos)
      << none.error().message;
  const auto all = recorded(64_KiB, {"liveness", "recompute_offload"});
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().code, ErrorCode::does_not_fit);
}

}  // namespace
}  // namespace superneurons
