// Calibration and recording look at the stop token between their stages.
#include <gtest/gtest.h>

#include <atomic>

#include "networks/network.h"
#include "tracer/calibrate.h"
#include "tracer/record.h"

namespace superneurons {
namespace {

TEST(Calibrate, ComesBackAtTheNextStage) {
  std::atomic<bool> stop{false};
  int stages = 0;
  const auto profile = calibrate_host({.progress =
                                           [&](const std::string&) {
                                             ++stages;
                                             stop = true;
                                           },
                                       .stop = &stop});
  ASSERT_FALSE(profile);
  EXPECT_EQ(profile.error().code, ErrorCode::cancelled);
  EXPECT_EQ(stages, 1);
}

TEST(Record, ComesBackWhenStopped) {
  std::atomic<bool> stop{false};
  int stages = 0;
  auto lowered = lower(*find_network("small_cnn"), {.batch = 2});
  ASSERT_TRUE(lowered);
  const auto trace = record(std::move(*lowered), {.progress =
                                                      [&](const std::string&) {
                                                        ++stages;
                                                        stop = true;
                                                      },
                                                  .stop = &stop});
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().code, ErrorCode::cancelled);
  EXPECT_EQ(stages, 1);
}

TEST(Record, OfASmallNetworkOnTheHostHasMeasuredTimes) {
  auto lowered = lower(*find_network("small_cnn"), {.batch = 2});
  ASSERT_TRUE(lowered);
  const auto trace = record(std::move(*lowered), {.warmup_steps = 1,
                                                  .traced_steps = 1,
                                                  .untraced_steps = 1,
                                                  .choices = false,
                                                  .origin = "a test"});
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_FALSE(find_fault(*trace));
  EXPECT_EQ(trace->capability(Fact::durations), Capability::exact);
  EXPECT_GT(trace->step_ns_untraced, 0_ns);
}

}  // namespace
}  // namespace superneurons
