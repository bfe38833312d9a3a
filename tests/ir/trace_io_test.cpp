#include "ir/trace_io.h"

#include <gtest/gtest.h>

#include "tests/mini_trace.h"

namespace superneurons {
namespace {

TEST(TraceText, RoundTripsMini) {
  Trace trace = mini(R"(
    tensor w 4K parameter carry
    tensor x 8K input carry
    tensor y 8K activation
    op conv forward : x w -> y[0:4K] @1000 ws=64K | @5
    op relu forward : y -> y @10
  )");
  const std::string text = format_trace(trace);
  const auto back = parse_trace(text, "t");
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(format_trace(*back), text);
  EXPECT_EQ(trace_hash(*back), trace_hash(trace));
}

}  // namespace
}  // namespace superneurons
