// Which part of a run is one training step, where only the kernels tell.
#include "tracer/training_window.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace superneurons {
namespace {

std::vector<std::uint32_t> tokens_of(const std::string& letters) {
  return {letters.begin(), letters.end()};
}

std::string times(int count, const std::string& part) {
  std::string text;
  for (int i = 0; i < count; ++i) text += part;
  return text;
}

TEST(Pattern, is_found_between_what_comes_before_and_after) {
  const auto found = find_pattern(tokens_of("ab" + times(3, "xyyyz") + "c"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->period, 5U);
  EXPECT_EQ(found->first, 2U);
  EXPECT_EQ(found->length, 15U);
  EXPECT_EQ(found->repetitions(), 3U);
}

TEST(Pattern, is_the_training_step_and_not_a_layer_that_repeats_in_it) {
  const std::string step = "e" + times(24, "abcd") + "l" + times(24, "dcbaw") + "ou";
  const auto found = find_pattern(tokens_of("iiijjj" + times(4, step) + "f"));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->period, step.size());
  EXPECT_EQ(found->repetitions(), 4U);
}

TEST(Pattern, of_one_kernel_again_and_again_is_that_kernel) {
  const auto found = find_pattern(tokens_of(times(50, "k")));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->period, 1U);
}

TEST(Pattern, takes_the_shortest_of_its_multiples) {
  const auto found = find_pattern(tokens_of(times(12, "abcdefg")));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->period, 7U);
  EXPECT_EQ(found->repetitions(), 12U);
}

TEST(Pattern, is_none_where_nothing_repeats_three_times_or_over_half_of_the_run) {
  EXPECT_FALSE(find_pattern({}));
  EXPECT_FALSE(find_pattern(tokens_of("abcdefgh")));
  EXPECT_FALSE(find_pattern(tokens_of("abcabc")));
  EXPECT_FALSE(find_pattern(tokens_of("qwertzuiopasdfghjkl" + times(3, "xyz"))));
}

TEST(Pattern, of_a_long_run_is_found_in_linear_time) {
  std::vector<std::uint32_t> step;
  for (std::uint32_t i = 0; i < 3000; ++i) step.push_back(i * i % 97);
  std::vector<std::uint32_t> tokens;
  for (int i = 0; i < 100; ++i) tokens.insert(tokens.end(), step.begin(), step.end());
  const auto found = find_pattern(tokens);
  ASSERT_TRUE(found);
  EXPECT_EQ(step.size() % found->period, 0U);
  EXPECT_EQ(found->length, tokens.size());
}

}  // namespace
}  // namespace superneurons
