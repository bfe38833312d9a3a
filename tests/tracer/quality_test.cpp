// Whether a recorded trace gives back what its recording measured.
#include "tracer/quality.h"

#include <gtest/gtest.h>

#include "tests/mini_trace.h"

namespace superneurons {
namespace {

/// Worked by hand: w is there throughout; y from op 0 until before op 2, dy from op 1 on.
//     op       w     y     dy   workspace   sum
//     first    4096  8192  -    1000        13288
//     second   4096  8192  512  -           12800
//     third    4096  -     512  -           4608
Trace three_ops() {
  Trace trace = mini(R"(
    tensor w 4K parameter carry
    tensor y 8K activation
    tensor dy 512 gradient
    op first forward : w -> y @1000 ws=1000
    op second backward : y w -> dy @2000
    op third update once : dy w -> w @500
  )");
  trace.tensors[1].freed_before = OpId{2};
  return trace;
}

TEST(RebuiltPeak, is_of_tensors_until_the_program_freed_them_and_of_workspaces) {
  std::string op;
  EXPECT_EQ(rebuilt_peak(three_ops(), &op), 13288_B);
  EXPECT_EQ(op, "first");
  Trace trace = three_ops();
  trace.ops[0].choices[0].workspace = 0_B;
  EXPECT_EQ(rebuilt_peak(trace, &op), 12800_B);
  EXPECT_EQ(op, "second");
  trace.tensors[1].freed_before.reset();
  EXPECT_EQ(rebuilt_peak(trace), 12800_B);  // and still there in the third
}

TEST(RebuiltPeak, of_pytorch_counts_the_pieces_of_its_allocator) {
  Trace trace = three_ops();
  trace.lowering = "pytorch";
  EXPECT_EQ(rebuilt_peak(trace), 4096_B + 8192_B + 1024_B);
}

TEST(RebuiltPeak, of_nothing_is_nothing) { EXPECT_EQ(rebuilt_peak(Trace{}), 0_B); }

TEST(Quality, says_nothing_of_what_the_recording_did_not_measure) {
  const Quality quality = quality_of(three_ops());
  EXPECT_FALSE(quality.peak_error);
  EXPECT_FALSE(quality.owned);
  EXPECT_TRUE(quality.doubts.empty());
}

TEST(Quality, doubts_that_a_tracer_makes_a_training_step_faster) {
  Trace trace = three_ops();
  trace.step_ns_untraced = 1000000_ns;
  trace.step_ns_traced = 960000_ns;
  EXPECT_TRUE(quality_of(trace).doubts.empty());
  trace.step_ns_traced = 400000_ns;
  ASSERT_EQ(quality_of(trace).doubts.size(), 1U);
  EXPECT_NE(quality_of(trace).doubts[0].find("1 ms to 400 us: they were probably disturbed"),
            std::string::npos)
      << quality_of(trace).doubts[0];
  trace.step_ns_untraced = 0_ns;  // not known
  EXPECT_TRUE(quality_of(trace).doubts.empty());
}

TEST(Quality, has_no_doubts_within_a_percent_of_the_peak_and_with_all_time_owned) {
  Trace trace = three_ops();
  trace.allocated_peak = 13300_B;
  trace.owned_ns = 9960_ns;
  trace.orphan_ns = 40_ns;
  const Quality quality = quality_of(trace);
  EXPECT_NEAR(*quality.peak_error, 13288.0 / 13300 - 1, 1e-12);
  EXPECT_NEAR(*quality.owned, 0.996, 1e-12);
  EXPECT_TRUE(quality.doubts.empty());
}

TEST(Quality, doubts_a_peak_that_is_off_and_time_that_nobody_owns_and_lost_records) {
  Trace trace = three_ops();
  trace.allocated_peak = 14000_B;
  trace.owned_ns = 9900_ns;
  trace.orphan_ns = 100_ns;
  trace.orphans = 7;
  trace.dropped_records = 3;
  const Quality quality = quality_of(trace);
  ASSERT_EQ(quality.doubts.size(), 3U);
  EXPECT_NE(quality.doubts[0].find("lost 3 records"), std::string::npos);
  EXPECT_NE(quality.doubts[1].find("own 99.00 %"), std::string::npos);
  EXPECT_NE(quality.doubts[1].find("7 kernels"), std::string::npos);
  EXPECT_NE(quality.doubts[2].find("5.09 % below"), std::string::npos) << quality.doubts[2];
}

}  // namespace
}  // namespace superneurons
