#include "simulator/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "memory/layer_steps.h"
#include "simulator/model_backend.h"
#include "tests/simulator/support.h"

namespace superneurons {
namespace {

using Json = nlohmann::json;

Outcome example() {
  Outcome outcome;
  outcome.policy = "liveness+offload";
  outcome.trace = "tiny";
  outcome.trace_hash = "00ff";
  outcome.allocator = "first_fit";
  outcome.budget_bytes = 2_GiB;
  outcome.live_peak_bytes = 1_GiB;
  outcome.placed_peak_bytes = 1536_MiB;
  outcome.step_ns = 1500000_ns;
  outcome.bound_ns = 1000000_ns;
  outcome.compute_ns = 1000000_ns;
  outcome.recompute_runs = 3;
  outcome.recompute_ns = 1000_ns;
  outcome.stall_ns[static_cast<std::size_t>(Cause::prefetch)] = 400000_ns;
  outcome.stall_ns[static_cast<std::size_t>(Cause::gap)] = 100000_ns;
  return outcome;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(Report, ColumnsAreOfEqualWidthAndNoLineEndsInBlanks) {
  const auto lines =
      lines_of(align({{"policy", "", "time"}, {"liveness", "a", "1"}, {"x", "", ""}}));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0], "policy       time");
  EXPECT_EQ(lines[1], "liveness  a     1");
  EXPECT_EQ(lines[2], "x");
}

TEST(Report, AReplayShowsTheErrorOfThePredictedTime) {
  Outcome outcome = example();
  outcome.measured_step_ns = 1200000_ns;
  EXPECT_NE(format_replay(outcome).find("25.0 % error"), std::string::npos);
  outcome.time_refused = "another GPU";
  EXPECT_EQ(format_replay(outcome).find("25.0 %"), std::string::npos);
}

TEST(Report, JsonHasEveryKeyOfTheFormat) {
  std::vector<Outcome> outcomes(1, example());
  const Json plain = Json::parse(format_json(outcomes, {{"budget", "2GiB"}}));
  EXPECT_EQ(plain["format"], "superneurons-result");
  EXPECT_EQ(plain["version"], "0.1");
  EXPECT_EQ(plain["options"]["budget"], "2GiB");
  const Json& outcome = plain["outcomes"][0];
  for (const char* key :
       {"policy", "trace", "trace_hash", "allocator", "budget_bytes", "live_peak_bytes",
        "placed_peak_bytes", "scope_peak_bytes", "host_bytes", "step_ns", "bound_ns", "compute_ns",
        "offload_bytes", "prefetch_bytes", "recompute_runs", "recompute_ns", "stall_ns"})
    EXPECT_TRUE(outcome.contains(key)) << key;
  EXPECT_EQ(outcome["stall_ns"]["prefetch"], 400000);
  EXPECT_EQ(outcome["scope_peak_bytes"].size(), kRoleNames.size());
  EXPECT_FALSE(outcome.contains("equal"));
  outcomes[0].equal = true;
  EXPECT_EQ(Json::parse(format_json(outcomes))["outcomes"][0]["equal"], true);
}

TEST(Report, WhatAnAllocatorReservesIsShownWhereItCaches) {
  std::vector<Outcome> outcomes(2, example());
  EXPECT_FALSE(Json::parse(format_json(outcomes))["outcomes"][0].contains("reserved_peak_bytes"));
  outcomes[1].allocated_peak_bytes = 1100_MiB;
  outcomes[1].reserved_peak_bytes = 1700_MiB;
  const Json json = Json::parse(format_json(outcomes))["outcomes"][1];
  EXPECT_EQ(json["allocated_peak_bytes"], Bytes{1100_MiB}.count);
  EXPECT_EQ(json["reserved_peak_bytes"], Bytes{1700_MiB}.count);
  EXPECT_NE(format_outcome(outcomes[1]).find("max_memory_reserved()"), std::string::npos);
  EXPECT_NE(format_outcome(outcomes[1]).find("1.66 GiB"), std::string::npos);
  EXPECT_EQ(format_outcome(outcomes[0]).find("max_memory_reserved()"), std::string::npos);
  EXPECT_EQ(format_outcome(outcomes[1]).find("run out"), std::string::npos);
  outcomes[1].budget_bytes = 1600_MiB;
  EXPECT_NE(format_outcome(outcomes[1]).find("run out"), std::string::npos);
}

TEST(Report, FormatDocumentShowsTheJsonAsItIsWritten) {
  std::ifstream file(SUPERNEURONS_SOURCE_DIR "/traces/FORMAT.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  std::vector<Outcome> outcomes(1, example());
  outcomes[0].measured_step_ns = 1490000_ns;
  outcomes[0].used_peak_bytes = outcomes[0].placed_peak_bytes;
  outcomes[0].measured_peak_bytes = 1536_MiB;
  outcomes[0].outside_bytes = 500_MiB;
  outcomes[0].equal = true;
  const std::string text = format_json(outcomes, {{"command", "superneurons replay tiny.jsonl"}});
  EXPECT_NE(document.find("```json\n" + text + "```\n"), std::string::npos) << text;
  const Json outcome = Json::parse(text)["outcomes"][0];
  EXPECT_NE(document.find("`reserved_peak_bytes`"), std::string::npos);
  for (const auto& item : outcome.items())
    EXPECT_NE(document.find('`' + item.key() + '`'), std::string::npos) << item.key();
}

TEST(Report, NamesThatAreNotUtf8DoNotThrow) {
  std::vector<Outcome> outcomes(1, example());
  outcomes[0].trace = "caf\xe9";
  EXPECT_TRUE(Json::accept(format_json(outcomes)));
}

struct Simulated {
  Trace trace = mini(R"(
    tensor x 2000 input carry
    tensor a 2000 activation
    tensor b 1000 activation
    op f1 forward : x -> a @1000
    op f2 forward : x -> b @100 ws=3K
    op b1 backward : a -> b @1000
  )");
  Plan plan = plan_of(trace, "f1 offload:a free:a f2 prefetch:a b1 free_host:a free:a free:b");
};

TEST(Report, ChromeTraceHasStreamsAsThreadsAndMonotoneCounters) {
  const Simulated given;
  const DeviceProfile profile = plain_profile();
  const Result<Placement> placement = place(given.trace, given.plan, 1_MiB);
  ASSERT_TRUE(placement);
  const Program program = build_program(given.trace, given.plan, *placement);
  const Result<Timeline> timeline =
      simulate_program(given.trace, program, profile, {.keep_spans = true});
  ASSERT_TRUE(timeline);
  const Json json = Json::parse(format_chrome_trace(given.trace, given.plan, program, *timeline));
  std::map<std::string, int> spans;
  double last_counter = -1e9;
  for (const Json& event : json["traceEvents"]) {
    if (event["ph"] == "X") ++spans[event["cat"]];
    if (event["ph"] != "C") continue;
    EXPECT_GE(event["ts"].get<double>(), last_counter);
    last_counter = event["ts"].get<double>();
    EXPECT_EQ(event["args"]["input"], 2000);
  }
  EXPECT_EQ(spans["compute"], 3);
  EXPECT_EQ(spans["offload"], 1);
  EXPECT_EQ(spans["prefetch"], 1);
  EXPECT_EQ(json["otherData"]["step_ns"], timeline->step_ns.count);
}

TEST(Report, MemorySeriesHasOneEntryPerPlanStep) {
  const Simulated given;
  const Json json = Json::parse(format_memory_json(given.trace, given.plan));
  const std::size_t steps = given.plan.steps.size();
  for (const char* column : {"kind", "name", "total", "workspace"})
    EXPECT_EQ(json[column].size(), steps) << column;
  for (const auto& role : json["by_role"]) EXPECT_EQ(role.size(), steps);
  EXPECT_EQ(json["name"][3], "f2");
  EXPECT_EQ(json["workspace"][3], 3072);
  EXPECT_EQ(json["total"][3], 2000 + 1000 + 3072);
}

TEST(Report, LayerStepsHaveTheirOwnBytesAndTheirPeak) {
  const Simulated given;
  const Json json = Json::parse(format_layer_steps_json(given.trace, given.plan));
  const std::vector<LayerStep> steps = layer_steps(given.trace, given.plan);
  ASSERT_EQ(json["steps"].size(), steps.size());
  std::int64_t peak = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(json["steps"][i]["bytes"], steps[i].bytes.count);
    EXPECT_EQ(json["steps"][i]["tensors"], steps[i].tensors);
    peak = std::max(peak, json["steps"][i]["peak_bytes"].get<std::int64_t>());
  }
  EXPECT_EQ(json["scope_peak_bytes"], peak);
  EXPECT_GT(peak, 0);
}

TEST(Report, OutcomeInFullNamesEveryCause) {
  const std::string text = format_outcome(example());
  for (const auto cause : kCauseNames) EXPECT_NE(text.find(cause), std::string::npos) << cause;
}

}  // namespace
}  // namespace superneurons
