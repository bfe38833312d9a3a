// PyTorch's allocator: worked examples from the constants of its source, an oracle that knows its
// rules and nothing of our data structures, and what a program reserves over training steps.
#include "memory/pytorch_caching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "memory/allocator.h"
#include "memory/reserved.h"
#include "tests/mini_trace.h"

namespace superneurons {
namespace {

// Small requests share segments of 2 MiB, large ones of 20 MiB:
//     [aaabb..][cccccddd..............]
TEST(PyTorchCaching, CutsRequestsFromSegmentsOfTheirPool) {
  const auto cache = find_allocator("pytorch_caching")->make(64_MiB);
  EXPECT_EQ(cache->allocate(513_B), 0_B);
  EXPECT_EQ(cache->allocate(1_B), 1024_B);
  EXPECT_EQ(cache->high_water(), 2_MiB);
  EXPECT_EQ(cache->allocate(5_MiB), 2_MiB);
  EXPECT_EQ(cache->allocate(3_MiB), 7_MiB);
  EXPECT_EQ(cache->high_water(), 22_MiB);
  EXPECT_EQ(cache->allocate(11_MiB + 1_B), 10_MiB) << "best fit finds it in the large segment";
  EXPECT_EQ(cache->allocate(11_MiB + 1_B), 22_MiB) << "a segment of its own, 12 MiB";
  EXPECT_EQ(cache->high_water(), 34_MiB);
}

TEST(PyTorchCaching, ARestOfOneMebibyteIsNotSplitOff) {
  const auto cache = find_allocator("pytorch_caching")->make(64_MiB);
  ASSERT_EQ(cache->allocate(9_MiB), 0_B);
  ASSERT_EQ(cache->allocate(9_MiB), 9_MiB);
  cache->free(0_B);
  EXPECT_EQ(cache->allocate(8_MiB), 0_B);
  cache->free(9_MiB);
  EXPECT_EQ(cache->allocate(11_MiB + 1_B), 20_MiB) << "the 1 MiB after the 8 MiB stayed with them";
}

TEST(PyTorchCaching, KeepsFreedSegmentsUntilTheArenaHasNoRoom) {
  const auto cache = find_allocator("pytorch_caching")->make(40_MiB);
  ASSERT_EQ(cache->allocate(12_MiB), 0_B);
  cache->free(0_B);
  EXPECT_EQ(cache->allocate(14_MiB), 12_MiB) << "the cached segment is too small and stays";
  EXPECT_EQ(cache->largest_hole(), 14_MiB);
  EXPECT_EQ(cache->allocate(14_MiB), 26_MiB);
  cache->free(26_MiB);
  cache->free(12_MiB);
  EXPECT_EQ(cache->allocate(30_MiB), 0_B) << "all cached segments were given back";
}

struct Example {
  Bytes size;
  Bytes allocated;
  Bytes reserved;
};

// c10/core/AllocatorConfig.h: kMinBlockSize 512, kSmallSize 1048576, kSmallBuffer 2097152,
// kMinLargeAlloc 10485760, kRoundLarge 2097152, large_segment_size 20971520.
TEST(PyTorchCaching, OneRequestTakesAndReservesWhatTheConstantsSay) {
  const Example examples[] = {
      {1_B, 512_B, 2_MiB},
      {513_B, 1024_B, 2_MiB},
      {1_MiB, 1_MiB, 2_MiB},
      {1_MiB + 1_B, 1_MiB + 512_B, 20_MiB},
      {10_MiB - 512_B, 10_MiB - 512_B, 20_MiB},
      {10_MiB, 10_MiB, 10_MiB},
      {10_MiB + 1_B, 10_MiB + 512_B, 12_MiB},  // 2 MiB less 512 B remain and are split off
      {11_MiB, 12_MiB, 12_MiB},                // 1 MiB remains: not more than kSmallSize
      {11_MiB - 512_B, 11_MiB - 512_B, 12_MiB},
  };
  for (const Example& example : examples) {
    PyTorchCaching cache(kEndless);
    ASSERT_TRUE(cache.allocate(example.size));
    EXPECT_EQ(cache.allocated_peak(), example.allocated) << example.size.count;
    EXPECT_EQ(cache.reserved(), example.reserved) << example.size.count;
  }
}

TEST(PyTorchCaching, ReservedStaysWhenBlocksAreFreedAndGoesOnlyUnderTheLimit) {
  PyTorchCaching cache(kEndless, 40_MiB);
  const auto first = cache.allocate(20_MiB);
  cache.free(*first);
  EXPECT_EQ(cache.reserved(), 20_MiB);
  const auto second = cache.allocate(18_MiB);
  EXPECT_EQ(*second, *first) << "the cached segment";
  EXPECT_EQ(cache.reserved(), 20_MiB);
  EXPECT_EQ(cache.allocated_peak(), 20_MiB);
  cache.free(*second);
  EXPECT_TRUE(cache.allocate(22_MiB)) << "20 + 22 MiB are beyond the limit: the first goes back";
  EXPECT_EQ(cache.reserved(), 22_MiB);
  EXPECT_EQ(cache.reserved_peak(), 22_MiB);
  EXPECT_FALSE(cache.allocate(20_MiB));
  EXPECT_TRUE(cache.allocate(18_MiB));
  EXPECT_EQ(cache.reserved_peak(), 40_MiB);
}

/// The rules as prose has them: a list of segments, each a list of blocks, searched from end to
/// end.
class Oracle {
 public:
  explicit Oracle(Bytes limit) : limit_(limit) {}

  std::optional<Bytes> allocate(Bytes wanted) {
    const Bytes size{(wanted.count + 511) / 512 * 512};
    const bool small = size <= 1_MiB;
    if (std::optional<Bytes> found = take(size, small)) return found;
    const Bytes segment = small ? 2_MiB
                          : size < 10_MiB
                              ? 20_MiB
                              : Bytes{(size.count + (2 << 20) - 1) / (2 << 20) * (2 << 20)};
    if (reserved() + segment > limit_)
      std::erase_if(segments_, [](const Segment& each) {
        return each.blocks.size() == 1 && !each.blocks[0].used;
      });
    if (reserved() + segment > limit_) return {};
    Bytes at{};  // the lowest gap
    for (const Segment& each : segments_)
      if (each.blocks.front().at - at >= segment) break;
      else at = each.blocks.back().at + each.blocks.back().size;
    const auto behind = std::find_if(segments_.begin(), segments_.end(), [&](const Segment& each) {
      return each.blocks.front().at > at;
    });
    segments_.insert(behind, Segment{small, {{at, segment, false}}});
    return take(size, small);
  }

  void free(Bytes at) {
    for (Segment& segment : segments_) {
      for (Block& block : segment.blocks)
        if (block.at == at) block.used = false;
      for (std::size_t i = 1; i < segment.blocks.size();)
        if (!segment.blocks[i - 1].used && !segment.blocks[i].used) {
          segment.blocks[i - 1].size += segment.blocks[i].size;
          segment.blocks.erase(segment.blocks.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
    }
  }

  Bytes reserved() const {
    Bytes sum{};
    for (const Segment& segment : segments_)
      for (const Block& block : segment.blocks) sum += block.size;
    return sum;
  }

 private:
  struct Block {
    Bytes at, size;
    bool used = false;
  };
  struct Segment {
    bool small = false;
    std::vector<Block> blocks;
  };

  std::optional<Bytes> take(Bytes size, bool small) {
    Segment* where = nullptr;
    std::size_t best = 0;
    for (Segment& segment : segments_)
      for (std::size_t i = 0; i < segment.blocks.size(); ++i) {
        const Block& block = segment.blocks[i];
        if (segment.small != small || block.used || block.size < size) continue;
        if (where != nullptr && block.size >= where->blocks[best].size) continue;
        where = &segment;
        best = i;
      }
    if (where == nullptr) return {};
    const Block whole = where->blocks[best];
    const Bytes rest = whole.size - size;
    const bool splits = small ? rest >= 512_B : rest > 1_MiB;
    where->blocks[best] = {whole.at, splits ? size : whole.size, true};
    if (splits)
      where->blocks.insert(where->blocks.begin() + static_cast<std::ptrdiff_t>(best) + 1,
                           {whole.at + size, rest, false});
    return whole.at;
  }

  Bytes limit_;
  std::vector<Segment> segments_;  // by offset
};

TEST(PyTorchCaching, AgreesWithAnOracleOfTheRulesAloneOnRandomCalls) {
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    const Bytes limit = seed % 3 == 0 ? kEndless : Bytes{(100 + 10 * seed) << 20};
    PyTorchCaching cache(kEndless, limit);
    Oracle oracle(limit);
    std::mt19937 random(seed);
    std::vector<Bytes> live;
    for (int i = 0; i < 1500; ++i) {
      if (!live.empty() && random() % 100 < 48) {
        std::swap(live[random() % live.size()], live.back());
        cache.free(live.back());
        oracle.free(live.back());
        live.pop_back();
      } else {
        const Bytes size{1 + static_cast<std::int64_t>(random() % (1U << (8 + random() % 18)))};
        const auto offset = cache.allocate(size);
        ASSERT_EQ(offset, oracle.allocate(size)) << "seed " << seed << ", call " << i;
        if (offset) live.push_back(*offset);
      }
      ASSERT_EQ(cache.reserved(), oracle.reserved()) << "seed " << seed << ", call " << i;
    }
  }
}

Plan plan_of(const Trace& trace, Bytes budget = kEndless) {
  Plan plan = keep_all_plan(trace);
  plan.allocator = "pytorch_caching";
  plan.budget = {budget, kEndless};
  return plan;
}

//     w  2 MiB small segment     x 24 MiB, of its own     m 12 MiB
//     first training step   x [xxxxxxxxxxxx] -> freed -> the update makes m in there [mmmmmm......]
//     second                x no longer fits beside m: a second segment of 24 MiB
TEST(ReservedPeak, CountsThatPyTorchMakesOptimizerStateInTheFirstUpdate) {
  Trace trace = mini(R"(
    tensor w 512K parameter carry
    tensor m 12M optimizer_state carry
    tensor x 24M activation
    op forward forward : w -> x @10
    op update update : w m -> w m @10
  )");
  Plan plan = plan_of(trace);
  const auto last = plan.steps.back();  // free x
  plan.steps.pop_back();
  plan.steps.insert(plan.steps.begin() + 1, last);
  const auto peaks = cache_peaks(trace, plan);
  ASSERT_TRUE(peaks);
  EXPECT_EQ(peaks->reserved, 2_MiB + 24_MiB + 24_MiB);
  EXPECT_EQ(peaks->allocated, 512_KiB + 12_MiB + 24_MiB);
  trace.tensors[1].role = Role::buffer;  // there from the beginning
  EXPECT_EQ(cache_peaks(trace, plan)->reserved, 2_MiB + 12_MiB + 24_MiB);
}

TEST(ReservedPeak, BeyondTheBudgetTellsThatTheProgramWouldRunOut) {
  const Trace trace = mini(R"(
    tensor x 24M activation
    tensor y 30M activation
    op a forward : -> x @10
    op b forward : x -> y @10
  )");
  EXPECT_EQ(cache_peaks(trace, plan_of(trace))->reserved, 54_MiB);
  EXPECT_EQ(cache_peaks(trace, plan_of(trace, 54_MiB))->reserved, 54_MiB);
  EXPECT_EQ(cache_peaks(trace, plan_of(trace, 50_MiB))->reserved, 54_MiB);
  Plan other = plan_of(trace);
  other.allocator = "first_fit";
  EXPECT_FALSE(cache_peaks(trace, other));
}

}  // namespace
}  // namespace superneurons
