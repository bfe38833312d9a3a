// Traces with fewer bytes: whole accesses stay whole, partial ones stay inside, plans still replay.
#include "replay/scale.h"

#include <gtest/gtest.h>

#include "replay/reference.h"
#include "replay/replay.h"
#include "tests/mini_trace.h"

namespace superneurons {
namespace {

TEST(ScaleBytes, rounds_outwards_and_keeps_whole_accesses_whole) {
  const Trace trace = mini(R"(
    tensor w 10 parameter carry
    tensor y 1000 activation
    op a forward : w -> y[0:501] ws=7
    op b forward : w y[333:334] -> y[501:1000]
    op c update : y w -> w
  )");
  const Result<Trace> scaled = scale_bytes(trace, 1, 4);
  ASSERT_TRUE(scaled);
  EXPECT_FALSE(find_fault(*scaled));
  EXPECT_EQ(scaled->tensors[0].bytes, 3_B);  // 2.5 up
  EXPECT_EQ(scaled->tensors[1].bytes, 250_B);
  EXPECT_EQ(scaled->ops[0].writes[0].length, 126_B);  // 125.25 up
  EXPECT_EQ(scaled->ops[0].choices[0].workspace, 2_B);
  EXPECT_EQ(scaled->ops[1].reads[1].offset, 83_B);  // 83.25 down
  EXPECT_EQ(scaled->ops[1].reads[1].length, 1_B);   // to 83.5 up
  EXPECT_EQ(scaled->ops[1].writes[0].offset, 125_B);
  EXPECT_EQ(scaled->ops[1].writes[0].length, 125_B);
  EXPECT_TRUE(covers(*scaled, scaled->ops[2].reads[0]));
  EXPECT_EQ(scaled->capability(Fact::native), Capability::none);
}

TEST(ScaleBytes, gives_a_trace_that_replays) {
  const Trace trace = mini(R"(
    tensor w 10M parameter carry
    tensor y 1000M activation
    op a forward : w -> y
    op b update : y w -> w
  )");
  const Result<Trace> scaled = scale_bytes(trace, 1, 1024);
  ASSERT_TRUE(scaled);
  const Plan plan = reference_plan(*scaled, keep_all_plan(*scaled));
  EXPECT_EQ(plan.budget.device, 10_KiB + 1000_KiB);
  ReplayOptions options;
  options.kernels = KernelSet::verify;
  EXPECT_TRUE(run_plan(*scaled, plan, options));
}

TEST(ScaleBytes, refuses_what_is_no_fraction) {
  const Trace trace = mini("tensor w 10 parameter carry");
  EXPECT_FALSE(scale_bytes(trace, 0, 4));
  EXPECT_FALSE(scale_bytes(trace, 1, 0));
  EXPECT_FALSE(scale_bytes(trace, 2, 1));
  EXPECT_FALSE(scale_bytes(trace, -1, -1));
}

}  // namespace
}  // namespace superneurons
