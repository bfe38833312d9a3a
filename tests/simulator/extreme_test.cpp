// Traces and profiles at the limits of what their readers take: nothing overflows (the sanitizers
// look), and times stay in order.
#include <gtest/gtest.h>

#include "ir/profile_io.h"
#include "ir/result.h"
#include "simulator/outcome.h"
#include "tests/simulator/support.h"

namespace superneurons {
namespace {

DeviceProfile slowest_profile() {
  DeviceProfile profile = plain_profile();
  profile.name = profile.device = "slowest";
  profile.device_memory = {std::int64_t{1} << 61};
  profile.host_memory = {std::int64_t{1} << 61};
  profile.offload = {{{{1000}, {std::int64_t{1} << 50}}}, 1e-6};
  profile.prefetch = profile.offload;
  profile.both_bytes_per_ns = 1e-6;
  profile.memory_bound = profile.compute_bound = {1000, 1000, 1000};
  for (Nanoseconds* ns : {&profile.launch_ns, &profile.copy_issue_ns, &profile.event_ns,
                          &profile.gap_ns, &profile.wait_ns, &profile.alloc_ns})
    *ns = {1'000'000'000};
  return profile;
}

TEST(Extreme, TheSlowestProfileIsAtTheLimitOfItsReader) {
  DeviceProfile profile = slowest_profile();
  EXPECT_TRUE(parse_profile(format_profile(profile), "profile"));
  profile.gap_ns += 1_ns;
  EXPECT_FALSE(parse_profile(format_profile(profile), "profile"));
}

TEST(Extreme, TheLongestTraceOnTheSlowestDeviceDoesNotOverflow) {
  Trace trace = mini(R"(
    tensor x 4K input carry
    tensor a 4K activation
    tensor b 4K activation
    tensor c 4K activation
    op f forward : x -> a
    op g forward : a -> b
    op h forward : b -> c
    op k backward : a c -> x
  )");
  for (const std::size_t i : {1, 2, 3}) trace.tensors[i].bytes = {std::int64_t{1} << 59};
  access_whole_tensors(trace);
  for (Op& op : trace.ops) op.choices[0].ns = {(std::int64_t{1} << 56) - 1};
  ASSERT_FALSE(find_fault(trace));
  std::string text = "f ";
  for (int i = 0; i < 100; ++i) text += "f ";  // runs again and again
  text += "offload:a g free:a h prefetch:a free_host:a k free:a free:b free:c";
  const Plan plan = plan_of(trace, text, {{std::int64_t{1} << 61}, {std::int64_t{1} << 61}});
  const DeviceProfile profile = slowest_profile();
  const auto outcome = evaluate(trace, plan, profile);
  ASSERT_TRUE(outcome) << outcome.error().message;
  EXPECT_GE(outcome->step_ns, 0_ns);
  EXPECT_LE(outcome->step_ns, kLatest);
  EXPECT_GE(outcome->compute_ns, 0_ns);
  EXPECT_GT(outcome->recompute_ns, 0_ns);
  for (const Nanoseconds stall : outcome->stall_ns) EXPECT_GE(stall, 0_ns);
  EXPECT_GT(time_bound(trace, profile, {{std::int64_t{1} << 60}, {1}}), 0_ns);
}

}  // namespace
}  // namespace superneurons
