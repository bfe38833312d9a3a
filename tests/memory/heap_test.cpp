// Worked examples, one unit = 1 KiB = one character; '.' is free.
#include <gtest/gtest.h>

#include "memory/allocator.h"

namespace superneurons {
namespace {

std::unique_ptr<Allocator> heap(std::string_view name, std::int64_t units) {
  return find_allocator(name)->make(kAllocationUnit * units);
}
std::optional<Bytes> units(std::int64_t count) { return kAllocationUnit * count; }

TEST(FirstFit, TakesTheLowestHoleThatIsLargeEnough) {
  const auto pool = heap("first_fit", 10);
  ASSERT_EQ(pool->allocate(3_KiB), units(0));
  ASSERT_EQ(pool->allocate(2_KiB), units(3));
  ASSERT_EQ(pool->allocate(4_KiB), units(5));  // aaabbcccc.
  pool->free(3_KiB);                           // aaa..cccc.
  EXPECT_EQ(pool->allocate(1_KiB), units(3));  // aaad.cccc.
  EXPECT_EQ(pool->allocate(2_KiB), std::nullopt);
  EXPECT_EQ(pool->largest_hole(), 1_KiB);
  pool->free(5_KiB);  // aaad......
  EXPECT_EQ(pool->largest_hole(), 6_KiB);
  EXPECT_EQ(pool->allocate(6_KiB), units(4));  // aaadeeeeee
  EXPECT_EQ(pool->largest_hole(), 0_B);
  EXPECT_EQ(pool->allocate(1_B), std::nullopt);
}

TEST(FirstFit, RoundsUpToBlocksOfOneKibibyte) {
  const auto pool = heap("first_fit", 4);
  EXPECT_EQ(pool->allocate(1_B), units(0));
  EXPECT_EQ(pool->allocate(1025_B), units(1));
  EXPECT_EQ(pool->allocate(1024_B), units(3));
  EXPECT_EQ(pool->rounded(1025_B), 2_KiB);
}

//     aaabbcccc.     as in memory/heap.h, but what is cut stays cut
TEST(FirstFitNoCoalesce, NeverJoinsNeighbours) {
  const auto pool = heap("first_fit_no_coalesce", 10);
  ASSERT_EQ(pool->allocate(3_KiB), units(0));
  ASSERT_EQ(pool->allocate(2_KiB), units(3));
  ASSERT_EQ(pool->allocate(4_KiB), units(5));
  pool->free(3_KiB);                           // aaa..cccc.
  EXPECT_EQ(pool->allocate(1_KiB), units(3));  // aaad.cccc.
  pool->free(5_KiB);                           // aaad.....|.  with a cut before the last five
  EXPECT_EQ(pool->largest_hole(), 4_KiB);
  EXPECT_EQ(pool->allocate(5_KiB), std::nullopt) << "six units in a row, but in three nodes";
  EXPECT_EQ(pool->allocate(4_KiB), units(5));
  EXPECT_EQ(pool->allocate(1_KiB), units(4));
  EXPECT_EQ(pool->allocate(1_KiB), units(9));
}

TEST(FirstFitNoCoalesce, AFreedNodeAtTheEndIsTakenInItsTurn) {
  for (const std::int64_t capacity : {4, 100}) {
    const auto pool = heap("first_fit_no_coalesce", capacity);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(pool->allocate(2_KiB));
    pool->free(2_KiB);
    EXPECT_EQ(pool->allocate(1_KiB), units(2)) << capacity;
    pool->free(0_B);
    EXPECT_EQ(pool->allocate(1_KiB), units(0)) << capacity;
  }
}

//     aaa.bb.c.....     the holes are 3 (never used), 1 and 1 units; the top is 5
TEST(BestFit, TakesTheSmallestHoleThatIsLargeEnough) {
  const auto pool = heap("best_fit", 13);
  for (const Bytes size : {3_KiB, 1_KiB, 2_KiB, 1_KiB}) ASSERT_TRUE(pool->allocate(size));
  pool->free(0_B);    // ...abbc......
  pool->free(4_KiB);  // ...a..c......
  EXPECT_EQ(pool->allocate(2_KiB), units(4)) << "first fit would take 0";
  EXPECT_EQ(pool->allocate(1_KiB), units(0));
}

TEST(BestFit, LeavesTheTopForLast) {
  const auto pool = heap("best_fit", 6);
  ASSERT_EQ(pool->allocate(3_KiB), units(0));
  ASSERT_EQ(pool->allocate(1_KiB), units(3));
  pool->free(0_B);  // ...b..
  // The top fits more tightly; taking it would make offsets depend on the capacity.
  EXPECT_EQ(pool->allocate(2_KiB), units(0));
}

TEST(OldestFreedFirst, LetsWhatWasFreedLastRest) {
  const auto pool = heap("oldest_freed_first", 8);
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(pool->allocate(1_KiB));  // abcdefgh
  pool->free(5_KiB);                                               // abcde.gh
  pool->free(1_KiB);                                               // a.cde.gh
  pool->free(3_KiB);                                               // a.c.e.gh
  EXPECT_EQ(pool->allocate(1_KiB), units(5));
  EXPECT_EQ(pool->allocate(1_KiB), units(1));
  EXPECT_EQ(pool->allocate(1_KiB), units(3));
}

TEST(OldestFreedFirst, AHoleIsAsOldAsItsYoungestPart) {
  const auto pool = heap("oldest_freed_first", 6);
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(pool->allocate(1_KiB));  // abcdef
  pool->free(0_B);                                                 // .bcdef
  pool->free(3_KiB);                                               // .bc.ef
  pool->free(1_KiB);                                               // ..c.ef
  EXPECT_EQ(pool->allocate(1_KiB), units(3));
  EXPECT_EQ(pool->allocate(1_KiB), units(0));
}

}  // namespace
}  // namespace superneurons
