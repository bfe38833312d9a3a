// Plans, profiles, the format document, and damaged texts of all three forms.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "ir/device_profile.h"
#include "tests/fuzz/text_laws.h"
#include "tests/ir/rich_trace.h"

namespace superneurons {
namespace {

TEST(PlanText, KeepsEveryField) {
  const Plan before = rich_plan();
  const auto after = parse_plan(format_plan(before), "p");
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(after->trace_hash, before.trace_hash);
  EXPECT_EQ(after->policy, before.policy);
  EXPECT_EQ(after->allocator, before.allocator);
  EXPECT_EQ(after->budget.device, before.budget.device);
  EXPECT_EQ(after->budget.host, before.budget.host);
  ASSERT_EQ(after->begin.size(), before.begin.size());
  for (std::size_t i = 0; i < before.begin.size(); ++i)
    EXPECT_EQ(after->begin[i].place, before.begin[i].place);
  ASSERT_EQ(after->steps.size(), before.steps.size());
  for (std::size_t i = 0; i < before.steps.size(); ++i) {
    EXPECT_EQ(after->steps[i].kind, before.steps[i].kind);
    EXPECT_EQ(after->steps[i].subject, before.steps[i].subject);
    EXPECT_EQ(after->steps[i].choice, before.steps[i].choice);
    EXPECT_EQ(after->steps[i].discard, before.steps[i].discard);
  }
  ASSERT_EQ(after->reasons.size(), before.reasons.size());
  EXPECT_EQ(after->reasons[0].step, 1U);
  EXPECT_EQ(after->reasons[0].text, before.reasons[0].text);
}

TEST(ProfileText, KeepsEveryField) {
  const DeviceProfile b = rich_profile();
  const auto a = parse_profile(format_profile(b), "p");
  ASSERT_TRUE(a) << a.error().message;
  EXPECT_EQ(a->name, b.name);
  EXPECT_EQ(a->device, b.device);
  EXPECT_EQ(a->measured, b.measured);
  EXPECT_EQ(a->origin, b.origin);
  EXPECT_EQ(a->device_memory, b.device_memory);
  EXPECT_EQ(a->host_memory, b.host_memory);
  ASSERT_EQ(a->offload.points.size(), 2U);
  EXPECT_EQ(a->offload.points[1].bytes, 1000_B);
  EXPECT_EQ(a->offload.points[1].ns, 105_ns);
  EXPECT_EQ(a->offload.bytes_per_ns, b.offload.bytes_per_ns);
  EXPECT_EQ(a->prefetch.bytes_per_ns, b.prefetch.bytes_per_ns);
  EXPECT_EQ(a->both_bytes_per_ns, b.both_bytes_per_ns);
  EXPECT_EQ(a->memory_bound.offload, b.memory_bound.offload);
  EXPECT_EQ(a->memory_bound.prefetch, b.memory_bound.prefetch);
  EXPECT_EQ(a->memory_bound.both, b.memory_bound.both);
  EXPECT_EQ(a->compute_bound.both, b.compute_bound.both);
  EXPECT_EQ(a->launch_ns, b.launch_ns);
  EXPECT_EQ(a->copy_issue_ns, b.copy_issue_ns);
  EXPECT_EQ(a->event_ns, b.event_ns);
  EXPECT_EQ(a->gap_ns, b.gap_ns);
  EXPECT_EQ(a->wait_ns, b.wait_ns);
  EXPECT_EQ(a->alloc_ns, b.alloc_ns);
  EXPECT_EQ(a->pin_ns_per_byte, b.pin_ns_per_byte);
  EXPECT_EQ(a->flops_per_ns, b.flops_per_ns);
  EXPECT_EQ(a->tf32_flops_per_ns, b.tf32_flops_per_ns);
  EXPECT_EQ(a->memory_bytes_per_ns, b.memory_bytes_per_ns);
  ASSERT_EQ(a->efficiency.size(), 2U);
  EXPECT_EQ(a->efficiency.at("Conv2dForward").bandwidth, 1.0 / 3);
  EXPECT_EQ(a->efficiency.at("").flops, 0.5);
}

TEST(TransferTime, FollowsThePointsAndThenTheBandwidth) {
  //  bytes  1000  3000  then 20 bytes/ns
  //  ns      100   500
  const TransferCurve curve{{{1000_B, 100_ns}, {3000_B, 500_ns}}, 20};
  EXPECT_EQ(transfer_time(curve, 0_B), 100_ns);
  EXPECT_EQ(transfer_time(curve, 999_B), 100_ns);
  EXPECT_EQ(transfer_time(curve, 1000_B), 100_ns);
  EXPECT_EQ(transfer_time(curve, 2000_B), 300_ns);
  EXPECT_EQ(transfer_time(curve, 3000_B), 500_ns);
  EXPECT_EQ(transfer_time(curve, 3001_B), 501_ns);  // rounded up
  EXPECT_EQ(transfer_time(curve, 5000_B), 600_ns);
  EXPECT_GT(transfer_time(curve, {INT64_MAX}).count, 0);
  EXPECT_GT(transfer_time({{{0_B, 0_ns}}, 1e-300}, {INT64_MAX}).count, 0);
}

/// The ```jsonl blocks of the format document.
std::vector<std::string> examples() {
  std::ifstream file(SUPERNEURONS_SOURCE_DIR "/traces/FORMAT.md");
  std::vector<std::string> blocks;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("```")) {
      inside = line == "```jsonl";
      if (inside) blocks.emplace_back();
    } else if (inside) {
      blocks.back() += line + '\n';
    }
  }
  return blocks;
}

/// Name of the form of a text, of its first two lines.
std::string form_of(const std::string& text) {
  std::smatch match;
  std::regex_search(text, match, std::regex("superneurons-(trace|plan|profile|activities)"));
  return match[1];
}

TEST(FormatDocument, HasExamplesThatAreTheCanonicalText) {
  std::set<std::string> seen;
  for (const std::string& text : examples()) {
    const std::string form = form_of(text);
    seen.insert(form);
    const auto expect_same = [&](const auto& value, auto format) {
      ASSERT_TRUE(value) << value.error().line << ": " << value.error().message << "\n" << text;
      EXPECT_EQ(format(*value), text);
    };
    if (form == "trace") expect_same(parse_trace(text, "FORMAT.md"), format_trace);
    if (form == "plan") expect_same(parse_plan(text, "FORMAT.md"), format_plan);
    // Of activity logs there is no canonical text: tests/tracer reads theirs.
    if (form == "profile") expect_same(parse_profile(text, "FORMAT.md"), format_profile);
  }
  EXPECT_EQ(seen, (std::set<std::string>{"trace", "plan", "profile", "activities"}));
}

TEST(FormatDocument, NamesEveryKey) {
  std::ifstream file(SUPERNEURONS_SOURCE_DIR "/traces/FORMAT.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  Trace trace = rich_trace();
  trace.ops[0].attributes.clear();  // free keys
  DeviceProfile profile = rich_profile();
  profile.efficiency.clear();
  const std::string all = format_trace(trace) + format_plan(rich_plan()) + format_profile(profile);
  const std::regex key("\"([a-z_0-9]+)\":");
  int keys = 0;
  for (std::sregex_iterator it(all.begin(), all.end(), key), end; it != end; ++it, ++keys) {
    const std::string name = (*it)[1];
    EXPECT_NE(document.find('`' + name + '`'), std::string::npos) << name;
  }
  EXPECT_GT(keys, 80);
}

/// One random change of a text: bytes, pieces, lines, or numbers.
std::string mutate(std::string text, std::mt19937_64& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  static const char* const kWords[] = {"-1",
                                       "0",
                                       "9223372036854775807",
                                       "1e308",
                                       "null",
                                       "true",
                                       "\"",
                                       "{",
                                       "}",
                                       "[",
                                       "]",
                                       ",",
                                       ":",
                                       "[[",
                                       "\\u0000",
                                       "\n",
                                       "4294967295",
                                       "0.5",
                                       "\"x\":",
                                       "{\"r\":\"op\"}\n"};
  const std::size_t at = below(text.size());
  switch (below(6)) {
    case 0:
      text[at] = static_cast<char>(random());
      break;
    case 1:
      text.erase(at, 1 + below(40));
      break;
    case 2:
      text.insert(at, kWords[below(std::size(kWords))]);
      break;
    case 3:
      text.insert(at, text.substr(below(text.size()), below(200)));
      break;
    case 4:
      text.resize(at);
      break;
    default: {  // another number in place of one
      const auto digit = text.find_first_of("0123456789", at);
      if (digit == std::string::npos) break;
      const auto end = text.find_first_not_of("0123456789", digit);
      text.replace(digit, end - digit, std::to_string(below(12)));
    }
  }
  return text;
}

template <class Value>
void hold_under_mutation(const std::vector<std::string>& texts, int rounds,
                         Result<Value> (*parse)(std::string_view, const std::string&),
                         std::string (*format)(const Value&)) {
  std::mt19937_64 random(2018);
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string text = texts[round % texts.size()];
    for (std::uint64_t n = 1 + random() % 3; n > 0 && !text.empty(); --n)
      text = mutate(std::move(text), random);
    accepted += hold_text_laws<Value>(text, parse, format);
  }
  EXPECT_GT(accepted, rounds / 100);  // the mutations are not all refused at the first character
  EXPECT_LT(accepted, rounds * 3 / 4);
}

TEST(DamagedText, IsRefusedOrReadBackAsItself) {
  std::vector<std::string> traces = {format_trace(rich_trace())},
                           plans = {format_plan(rich_plan())},
                           profiles = {format_profile(rich_profile())};
  for (const std::string& text : examples())
    (form_of(text) == "trace"  ? traces
     : form_of(text) == "plan" ? plans
                               : profiles)
        .push_back(text);
  hold_under_mutation(traces, 6000, parse_trace, format_trace);
  hold_under_mutation(plans, 4000, parse_plan, format_plan);
  hold_under_mutation(profiles, 4000, parse_profile, format_profile);
}

}  // namespace
}  // namespace superneurons
