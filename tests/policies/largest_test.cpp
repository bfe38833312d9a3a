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
