// Every recorded trace × every policy × budgets replays on the host to the bits of its reference,
// with sizes and budget divided.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "ir/check.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "memory/placement.h"
#include "policies/policy.h"
#include "replay/reference.h"
#include "replay/replay.h"
#include "replay/scale.h"
#include "simulator/outcome.h"

namespace superneurons {
namespace {

std::vector<std::string> recorded_traces() {
  std::vector<std::string> files;
  const std::filesystem::path folder = SUPERNEURONS_SOURCE_DIR "/traces";
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.path().string().ends_with(".jsonl.gz")) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

/// All of them; of a long trace of another program, which takes minutes, three stand for all.
std::vector<std::string> policies_for(const Trace& trace) {
  if (trace.ops.size() > 1000 && trace.capability(Fact::native) == Capability::none)
    return {"liveness", "recompute_offload", "superneurons_best"};
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policies()) names.emplace_back(entry.name);
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  return names;
}

class RecordedTrace : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto read = read_trace(GetParam());
    ASSERT_TRUE(read) << read.error().message;
    // Other programs' training steps move ten times the bytes of our networks'.
    const bool native = read->capability(Fact::native) != Capability::none;
    auto scaled = scale_bytes(*read, 1, native ? 1024 : 8192);
    ASSERT_TRUE(scaled) << scaled.error().message;
    trace = std::move(*scaled);
    auto known = read_profile(SUPERNEURONS_SOURCE_DIR "/traces/profiles/h200.json");
    ASSERT_TRUE(known) << known.error().message;
    profile = std::move(*known);
  }

  Result<Plan> plan(const std::string& policy, Bytes budget, bool seek_floor = false) {
    return make_plan(
        trace, profile,
        {.policy = policy, .budget = {budget, profile.host_memory}, .seek_floor = seek_floor},
        predictor(trace, profile));
  }

  Result<superneurons::Run> replay(const Plan& made) {
    return run_plan(trace, made, {.kernels = KernelSet::verify, .training_steps = 3});
  }

  /// Whether the same plan, whoever made it, was replayed before; from now on it was.
  bool replayed_before(const Plan& made) {
    const bool known = std::any_of(plans.begin(), plans.end(), [&](const Plan& other) {
      return other.allocator == made.allocator && other.begin == made.begin &&
             other.steps == made.steps;
    });
    if (!known) plans.push_back(made);
    return known;
  }

  Trace trace;
  DeviceProfile profile;
  std::vector<Plan> plans;  // all different
};

TEST_P(RecordedTrace, replays_equal_under_every_policy_and_feasible_budget) {
  const auto liveness = plan("liveness", Bytes{std::int64_t{1} << 50});
  ASSERT_TRUE(liveness) << liveness.error().message;
  const auto peak = smallest_arena(trace, *liveness);
  ASSERT_TRUE(peak);
  const auto reference = replay(reference_plan(trace, *liveness));
  ASSERT_TRUE(reference) << reference.error().message;
  ASSERT_FALSE(reference->checksums.values.empty());
  int feasible = 0;
  for (const std::string& policy : policies_for(trace)) {
    for (const int percent : {100, 80, 60, 0}) {
      SCOPED_TRACE(policy + " at " + std::to_string(percent) + " %");
      auto made =
          plan(policy, {std::max<std::int64_t>(peak->count * percent / 100, 1)}, percent == 0);
      if (!made && percent == 0 && made.error().shortage)
        made = plan(policy, made.error().shortage->smallest_budget, true);
      if (!made) {
        EXPECT_EQ(made.error().code, ErrorCode::does_not_fit) << made.error().message;
        EXPECT_GT(percent, 0) << "a floor that does not fit: " << made.error().message;
        continue;
      }
      ++feasible;
      if (replayed_before(*made)) continue;
      const auto placement = place(trace, *made, made->budget.device);
      ASSERT_TRUE(placement);
      made->budget.device = placement->placed_peak;
      const auto done = replay(*made);
      ASSERT_TRUE(done) << done.error().message;
      EXPECT_EQ(difference(trace, reference->checksums, done->checksums), "");
      EXPECT_EQ(done->measured.peak, placement->used_peak);
    }
  }
  EXPECT_GE(feasible, 4);
}

INSTANTIATE_TEST_SUITE_P(
    traces, RecordedTrace, testing::ValuesIn(recorded_traces()), [](const auto& file) {
      std::string name =
          std::filesystem::relative(file.param, SUPERNEURONS_SOURCE_DIR "/traces").string();
      name.resize(name.size() - std::string(".jsonl.gz").size());
      std::replace_if(
          name.begin(), name.end(),
          [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
      return name;
    });

}  // namespace
}  // namespace superneurons
