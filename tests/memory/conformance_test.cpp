// What every allocator of the registry owes; a new row is tested before its author writes a test.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>

#include "memory/allocator.h"

namespace superneurons {
namespace {

std::vector<const AllocatorEntry*> online() {
  std::vector<const AllocatorEntry*> entries;
  for (const AllocatorEntry& entry : allocators())
    if (!entry.offline) entries.push_back(&entry);
  return entries;
}

class EveryAllocator : public testing::TestWithParam<const AllocatorEntry*> {
 protected:
  std::unique_ptr<Allocator> make(Bytes capacity) const { return GetParam()->make(capacity); }
};

INSTANTIATE_TEST_SUITE_P(Registry, EveryAllocator, testing::ValuesIn(online()),
                         [](const auto& row) { return std::string(row.param->name); });

/// Watches an allocator: ranges lie inside the arena, do not overlap and start on 512 B.
class Watched {
 public:
  Watched(Allocator& allocator, Bytes capacity) : allocator_(allocator), capacity_(capacity) {}

  std::optional<Bytes> allocate(Bytes size) {
    const std::optional<Bytes> offset = allocator_.allocate(size);
    if (!offset) return offset;
    const Bytes end = *offset + allocator_.rounded(size);
    EXPECT_EQ(offset->count % 512, 0);
    EXPECT_GE(allocator_.rounded(size), size);
    EXPECT_GE(*offset, 0_B);
    EXPECT_LE(end, capacity_);
    EXPECT_LE(end, allocator_.high_water());
    const auto after = taken_.lower_bound(*offset);
    if (after != taken_.end()) {
      EXPECT_LE(end, after->first);
    }
    if (after != taken_.begin()) {
      EXPECT_LE(std::prev(after)->second, *offset);
    }
    taken_[*offset] = end;
    return offset;
  }
  void free(Bytes offset) {
    allocator_.free(offset);
    taken_.erase(offset);
  }
  const std::map<Bytes, Bytes>& taken() const { return taken_; }

 private:
  Allocator& allocator_;
  Bytes capacity_;
  std::map<Bytes, Bytes> taken_;
};

/// Random calls over sizes from bytes to 30 MiB; returns the offsets.
std::vector<std::optional<Bytes>> churn(Watched& heap, std::uint32_t seed, int calls) {
  std::mt19937 random(seed);
  std::vector<std::optional<Bytes>> offsets;
  std::vector<Bytes> live;
  for (int i = 0; i < calls; ++i) {
    if (!live.empty() && random() % 100 < 48) {
      std::swap(live[random() % live.size()], live.back());
      heap.free(live.back());
      live.pop_back();
      continue;
    }
    const Bytes size{1 + static_cast<std::int64_t>(random() % (1U << (6 + random() % 19)))};
    offsets.push_back(heap.allocate(size));
    if (offsets.back()) live.push_back(*offsets.back());
  }
  for (const Bytes offset : live) heap.free(offset);
  return offsets;
}

TEST_P(EveryAllocator, RangesNeverOverlapAndAllCoalesceInTheEnd) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const auto allocator = make(200_MiB);
    Watched heap(*allocator, 200_MiB);
    churn(heap, seed, 3000);
    if (!GetParam()->coalesces) continue;
    EXPECT_EQ(allocator->largest_hole(), 200_MiB);
    EXPECT_EQ(heap.allocate(200_MiB), 0_B) << "the whole space at the end";
    EXPECT_EQ(heap.allocate(1_B), std::nullopt);
  }
}

TEST_P(EveryAllocator, OffsetsAreAFunctionOfTheCalls) {
  const auto once = make(64_MiB);
  const auto again = make(64_MiB);
  Watched first(*once, 64_MiB);
  Watched second(*again, 64_MiB);
  EXPECT_EQ(churn(first, 7, 5000), churn(second, 7, 5000));
}

TEST_P(EveryAllocator, OffsetsDoNotDependOnTheCapacityUnlessDeclared) {
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const auto endless = make(kEndless);
    Watched first(*endless, kEndless);
    const auto offsets = churn(first, seed, 2000);
    const auto exact = make(endless->high_water());
    Watched second(*exact, endless->high_water());
    EXPECT_EQ(churn(second, seed, 2000), offsets);
    if (GetParam()->elastic) continue;
    const auto less = make(endless->high_water() - kAllocationUnit);
    Watched third(*less, endless->high_water() - kAllocationUnit);
    EXPECT_NE(churn(third, seed, 2000), offsets);
  }
}

TEST_P(EveryAllocator, TheLargestHoleIsTheLargestRequestThatIsGranted) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const Bytes capacity = 60_MiB;
    const auto allocator = make(capacity);
    std::vector<Bytes> live;
    for (int i = 0; i < 40; ++i) {
      const Bytes size{1 + static_cast<std::int64_t>(random() % (1U << (10 + random() % 15)))};
      if (const auto offset = allocator->allocate(size)) live.push_back(*offset);
    }
    for (const Bytes offset : live)
      if (random() % 2 == 0) allocator->free(offset);
    const Bytes largest = allocator->largest_hole();
    EXPECT_EQ(allocator->allocate(largest + 1_B), std::nullopt);
    if (largest > 0_B) {
      EXPECT_TRUE(allocator->allocate(largest)) << largest.count;
    }
  }
}

TEST_P(EveryAllocator, ExhaustedThenFreedInAnyOrderFillsCompletelyAgain) {
  const auto allocator = make(40_MiB);
  Watched heap(*allocator, 40_MiB);
  std::mt19937 random(3);
  for (int round = 0; round < 3; ++round) {
    std::vector<Bytes> live;
    while (const auto offset = heap.allocate(256_KiB)) live.push_back(*offset);
    EXPECT_EQ(live.size(), 160U);
    std::shuffle(live.begin(), live.end(), random);
    for (const Bytes offset : live) heap.free(offset);
  }
}

TEST_P(EveryAllocator, ReservedRangesAreNotHandedOut) {
  const auto allocator = make(64_MiB);
  ASSERT_TRUE(allocator->reserve(4_MiB, 2_MiB));
  EXPECT_FALSE(allocator->reserve(5_MiB, 2_MiB));
  EXPECT_FALSE(allocator->reserve(3_MiB, 2_MiB));
  EXPECT_FALSE(allocator->reserve(63_MiB, 2_MiB));
  EXPECT_FALSE(allocator->reserve(64_MiB, 1_KiB));
  EXPECT_FALSE(allocator->reserve(0_B - 1_MiB, 2_MiB));
  EXPECT_FALSE(allocator->reserve(1_MiB, 0_B));
  EXPECT_EQ(allocator->high_water(), 6_MiB);
  Watched heap(*allocator, 64_MiB);
  while (const auto offset = heap.allocate(1_MiB))
    EXPECT_TRUE(*offset + 1_MiB <= 4_MiB || *offset >= 6_MiB) << offset->count;
  EXPECT_EQ(heap.taken().size(), 62U);
  const std::map<Bytes, Bytes> taken = heap.taken();
  for (const auto& range : taken) heap.free(range.first);
  allocator->free(4_MiB);
  if (!GetParam()->coalesces) {
    EXPECT_TRUE(heap.allocate(2_MiB)) << "the reserved range, in one piece";
    return;
  }
  EXPECT_EQ(heap.allocate(64_MiB), 0_B);
}

TEST_P(EveryAllocator, FreeingWhatIsNotTakenChangesNothing) {
  const auto allocator = make(32_MiB);
  allocator->free(0_B);
  const auto first = allocator->allocate(20_MiB);
  ASSERT_TRUE(first);
  allocator->free(*first + 1_KiB);
  allocator->free(0_B - 1_KiB);
  allocator->free(64_MiB);
  EXPECT_EQ(allocator->allocate(20_MiB), std::nullopt);
  allocator->free(*first);
  allocator->free(*first);
  EXPECT_TRUE(allocator->allocate(20_MiB));
  EXPECT_EQ(allocator->allocate(20_MiB), std::nullopt);
}

TEST_P(EveryAllocator, OddArgumentsAreRefusedNotCrashed) {
  for (const Bytes capacity : {0_B, 1_B, 1023_B, Bytes{-5}}) {
    const auto allocator = make(capacity);
    EXPECT_EQ(allocator->allocate(1_B), std::nullopt);
    EXPECT_EQ(allocator->largest_hole(), 0_B);
  }
  const auto allocator = make(32_MiB);
  EXPECT_EQ(allocator->allocate(0_B), std::nullopt);
  EXPECT_EQ(allocator->allocate(Bytes{-1}), std::nullopt);
  EXPECT_EQ(allocator->allocate(Bytes{INT64_MAX}), std::nullopt);
  EXPECT_FALSE(allocator->reserve(0_B, Bytes{INT64_MAX}));
  EXPECT_TRUE(allocator->allocate(32_MiB));
}

TEST(Allocators, HaveUniqueNamesAndAreFoundByThem) {
  std::set<std::string_view> names;
  for (const AllocatorEntry& entry : allocators()) {
    EXPECT_TRUE(names.insert(entry.name).second);
    EXPECT_EQ(find_allocator(entry.name), &entry);
    EXPECT_EQ(entry.offline, entry.make == nullptr);
  }
  EXPECT_EQ(find_allocator("first_fi"), nullptr);
}

}  // namespace
}  // namespace superneurons
