#include "cli/largest.h"

#include <gtest/gtest.h>

namespace superneurons {
namespace {

TEST(Largest, IsFoundBetweenTheLastThatFitsAndTheFirstThatDoesNot) {
  for (const std::int64_t most : {1, 2, 3, 7, 8, 100, 1000}) {
    const auto found =
        find_largest(1 << 20, [&](std::int64_t value) -> Result<bool> { return value <= most; });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->value, most);
    EXPECT_FALSE(found->tried.at(most + 1));
    EXPECT_LT(found->tried.size(), 26U);
  }
}

TEST(Largest, IsNoneWhereNotEvenOneFits) {
  const auto found = find_largest(100, [](std::int64_t) -> Result<bool> { return false; });
  EXPECT_EQ(found->value, 0);
  EXPECT_EQ(found->tried.size(), 1U);
}

TEST(Largest, EndsAtTheLimit) {
  const auto found = find_largest(100, [](std::int64_t) -> Result<bool> { return true; });
  EXPECT_EQ(found->value, 100);
}

TEST(Largest, LooksFurtherAsAPolicyNeedNotBeMonotone) {
  // 40 fits, 41 does not, 44 to 50 do again.
  const auto found = find_largest(1000, [](std::int64_t value) -> Result<bool> {
    return value <= 40 || (value >= 44 && value <= 50);
  });
  EXPECT_EQ(found->value, 50);
}

// What was refused at first sight is asked about again, of the next few and 2 % further.
TEST(Largest, IsPushedOnWhereRefusalsWereNotFinal) {
  struct {
    std::int64_t from, most, island, value;
  } const cases[] = {{22, 22, 0, 22},
                     {22, 23, 0, 23},
                     {22, 60, 0, 60},
                     {22, 22, 26, 26},
                     {22, 22, 27, 22},
                     {0, 0, 0, 0},
                     {0, 3, 0, 3},
                     {1000, 1000, 0, 1000},
                     {1000, 1000, 1020, 1020},
                     {1000, 1015, 1018, 1018}};
  for (const auto& [from, most, island, value] : cases) {
    const auto found = push_on(1 << 20, from, [&](std::int64_t asked) -> Result<bool> {
      return asked <= most || asked == island;
    });
    ASSERT_TRUE(found);
    EXPECT_EQ(found->value, value);
    for (std::int64_t i = 1; i <= kRefusedInRow; ++i) EXPECT_FALSE(found->tried.at(value + i));
    EXPECT_LT(found->tried.size(), 25U);
  }
}

TEST(Largest, IsPushedOnToTheLimitAtMost) {
  const auto found = push_on(30, 22, [](std::int64_t) -> Result<bool> { return true; });
  EXPECT_EQ(found->value, 30);
}

TEST(Largest, PassesErrorsOn) {
  const auto found = find_largest(100, [](std::int64_t value) -> Result<bool> {
    if (value > 4) return Error{ErrorCode::cancelled, "stopped"};
    return true;
  });
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace superneurons
