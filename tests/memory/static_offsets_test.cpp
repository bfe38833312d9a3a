#include "memory/static_offsets.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace superneurons {
namespace {

/// End of the highest lifetime; fails the test where two that are alive together overlap.
Bytes peak_of(const std::vector<Lifetime>& lifetimes, const std::vector<Bytes>& offsets) {
  EXPECT_EQ(offsets.size(), lifetimes.size());
  Bytes peak{};
  std::multimap<std::uint32_t, std::pair<bool, std::size_t>> moments;  // ends sort before begins
  for (std::size_t i = 0; i < lifetimes.size(); ++i) moments.insert({lifetimes[i].to, {false, i}});
  for (std::size_t i = 0; i < lifetimes.size(); ++i) moments.insert({lifetimes[i].from, {true, i}});
  std::map<Bytes, Bytes> alive;
  for (const auto& [time, moment] : moments) {
    const auto [begins, i] = moment;
    if (!begins) {
      alive.erase(offsets[i]);
      continue;
    }
    const Bytes end = offsets[i] + lifetimes[i].size;
    const auto after = alive.lower_bound(offsets[i]);
    EXPECT_TRUE(after == alive.end() || end <= after->first) << i;
    EXPECT_TRUE(after == alive.begin() || std::prev(after)->second <= offsets[i]) << i;
    alive[offsets[i]] = end;
    peak = std::max(peak, end);
  }
  return peak;
}

/// Most bytes alive at one time: no packing has a lower peak.
Bytes most_alive(const std::vector<Lifetime>& lifetimes) {
  std::map<std::uint32_t, Bytes> changes;
  for (const Lifetime& lifetime : lifetimes) {
    changes[lifetime.from] += lifetime.size;
    changes[lifetime.to] -= lifetime.size;
  }
  Bytes alive{}, most{};
  for (const auto& [time, change] : changes) most = std::max(most, alive += change);
  return most;
}

std::vector<Lifetime> random_lifetimes(std::uint32_t seed, std::uint32_t count) {
  std::mt19937 random(seed);
  std::vector<Lifetime> lifetimes;
  for (std::uint32_t i = 0; i < count; ++i) {
    // A third live until the mirrored time, as what backward reads does.
    const std::uint32_t to =
        i < count / 2 && random() % 3 == 0 ? 2 * count - 2 * i : 2 * i + 1 + random() % 8;
    lifetimes.push_back(
        {kAllocationUnit * (1 + random() % (1U << random() % 14)), 2 * i, std::max(to, 2 * i + 1)});
  }
  return lifetimes;
}

// The example of the header.
TEST(StaticOffsets, ReachTheBoundWhereFirstFitDoesNot) {
  const std::vector<Lifetime> lifetimes = {{1_B, 0, 1}, {1_B, 0, 3}, {2_B, 1, 3}};
  EXPECT_EQ(most_alive(lifetimes), 3_B);
  EXPECT_EQ(peak_of(lifetimes, plan_offsets(lifetimes)), 3_B);
}

TEST(StaticOffsets, NeverOverlapAndStayBetweenTheBoundAndFirstFit) {
  Bytes waste{};
  Bytes total{};
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    const std::vector<Lifetime> lifetimes = random_lifetimes(seed, 40 + 20 * seed);
    const Bytes peak = peak_of(lifetimes, plan_offsets(lifetimes));
    EXPECT_GE(peak, most_alive(lifetimes));
    const auto heap = find_allocator("first_fit")->make(kEndless);
    std::multimap<std::uint32_t, Bytes> ends;
    for (const Lifetime& lifetime : lifetimes) {
      while (!ends.empty() && ends.begin()->first <= lifetime.from) {
        heap->free(ends.begin()->second);
        ends.erase(ends.begin());
      }
      ends.insert({lifetime.to, *heap->allocate(lifetime.size)});
    }
    EXPECT_LE(peak, heap->high_water());
    waste += peak - most_alive(lifetimes);
    total += most_alive(lifetimes);
  }
  EXPECT_LT(waste * 1000, total) << "together within 0.1 % of the bounds";
}

TEST(StaticOffsets, AreTheSameEveryTime) {
  const std::vector<Lifetime> lifetimes = random_lifetimes(11, 2000);
  EXPECT_EQ(plan_offsets(lifetimes), plan_offsets(lifetimes));
}

TEST(StaticOffsets, TakeTwentyFiveThousandLifetimes) {
  const std::vector<Lifetime> lifetimes = random_lifetimes(1, 25'000);
  const Bytes peak = peak_of(lifetimes, plan_offsets(lifetimes));
  EXPECT_LE(peak.count, most_alive(lifetimes).count * 5 / 4);
}

TEST(StaticOffsets, OfNothingAreNothing) { EXPECT_TRUE(plan_offsets({}).empty()); }

}  // namespace
}  // namespace superneurons
