// Property: whatever lawful plan, replayed with verify surrogates in the smallest arena that it
// places in, ends with the bits of its reference.
#include <gtest/gtest.h>

#include "memory/allocator.h"
#include "memory/placement.h"
#include "replay/reference.h"
#include "replay/replay.h"
#include "tests/cases.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

constexpr std::uint64_t kCases = cases(1000);

/// All allocators in turn.
std::string allocator_for(std::uint64_t seed) {
  std::vector<std::string_view> names;
  for (const AllocatorEntry& entry : allocators()) names.push_back(entry.name);
  return std::string(names[seed % names.size()]);
}

/// "" if the two ended alike.
std::string compare(const Trace& trace, const Plan& plan, const ReplayOptions& options) {
  ReplayOptions calm = options;
  calm.stress = calm.guards = false;
  const auto reference = run_plan(trace, reference_plan(trace, plan), calm);
  if (!reference) return "reference: " + reference.error().message;
  const auto run = run_plan(trace, plan, options);
  if (!run) return run.error().message;
  const auto placement = place(trace, plan, plan.budget.device);
  if (!placement) return placement.error().message;
  if (!options.guards && run->measured.peak != placement->used_peak)
    return "measured peak " + std::to_string(run->measured.peak.count) + ", predicted " +
           std::to_string(placement->used_peak.count);
  return difference(trace, reference->checksums, run->checksums);
}

TEST(RandomPlans, end_with_the_bits_of_their_reference) {
  for (std::uint64_t seed = 1; seed <= kCases; ++seed) {
    const Trace trace = random_trace(seed);
    Plan plan = random_lawful_plan(trace, seed);
    plan.allocator = allocator_for(seed);
    plan.budget.host = 1_GiB;
    const Result<Bytes> arena = smallest_arena(trace, plan);
    ASSERT_TRUE(arena) << "seed " << seed << ": " << arena.error().message;
    plan.budget.device = *arena;
    ReplayOptions options;
    options.kernels = KernelSet::verify;
    options.training_steps = 3;
    options.seed = seed;
    options.stress = seed % 8 == 0;
    options.guards = seed % 8 == 4;
    ASSERT_EQ(compare(trace, plan, options), "") << "seed " << seed << ", " << plan.allocator;
  }
}

}  // namespace
}  // namespace superneurons
