// What a tracer saw, from logs written by hand: correlation, losses, the log's file, its trace.
#include "tracer/activity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "ir/trace_io.h"
#include "tracer/activity_log.h"
#include "tracer/from_activities.h"

namespace superneurons {
namespace {

DeviceActivity kernel(std::uint32_t correlation, std::int64_t start, std::int64_t end,
                      std::uint32_t name = 0) {
  return {name, correlation, 7, {start}, {end}, true};
}

/// Two training steps of two ops: op 0 with one kernel, op 1 with two. Records come in any order.
ActivityLog two_steps() {
  ActivityLog log;
  log.names = {"gemm", "add"};
  log.device = {kernel(21, 300, 350, 1), kernel(20, 250, 280), kernel(10, 0, 100),
                kernel(12, 170, 200, 1), kernel(11, 110, 160), kernel(22, 290, 295)};
  log.tags = {{22, make_tag(1, {1})}, {11, make_tag(0, {1})}, {10, make_tag(0, {0})},
              {12, make_tag(0, {1})}, {20, make_tag(1, {0})}, {21, make_tag(1, {1})}};
  return log;
}

TEST(Attribution, gives_records_in_any_order_to_the_ops_that_launched_them) {
  const Attribution found = attribute(two_steps(), 2, 2);
  EXPECT_EQ(found.orphans, 0U);
  EXPECT_EQ(found.owned_ns, 100_ns + 50_ns + 30_ns + 30_ns + 50_ns + 5_ns);
  EXPECT_EQ(found.steps[0][0].span, 100_ns);
  EXPECT_EQ(found.steps[0][1].span, 90_ns);  // first start to last end, the gap included
  EXPECT_EQ(found.steps[0][1].busy, 80_ns);
  ASSERT_EQ(found.steps[1][1].parts.size(), 2U);
  EXPECT_EQ(found.steps[1][1].parts[0].correlation, 22U);  // by start
  EXPECT_EQ(found.steps[1][1].span, 60_ns);
}

TEST(Attribution, counts_what_belongs_to_no_op_as_orphans) {
  ActivityLog log = two_steps();
  log.tags.pop_back();                         // call 21 has no tag
  log.tags.push_back({30, make_tag(2, {0})});  // there is no third training step
  log.tags.push_back({31, make_tag(0, {2})});  // there is no third op
  log.tags.push_back({32, 0});                 // a tag that make_tag never gives
  for (const std::uint32_t call : {30U, 31U, 32U}) log.device.push_back(kernel(call, 400, 410));
  const Attribution found = attribute(log, 2, 2);
  EXPECT_EQ(found.orphans, 4U);
  EXPECT_EQ(found.orphan_ns, 50_ns + 30_ns);
  EXPECT_EQ(found.steps[1][1].parts.size(), 1U);
  const Losses losses = losses_of(log, found, 0);
  EXPECT_TRUE(losses.exact());  // work of no op costs no op its time
  EXPECT_EQ(describe(losses), "4 device activities (80 ns) of no op");
}

TEST(Attribution, of_an_empty_log_is_empty) {
  const Attribution found = attribute({}, 2, 3);
  ASSERT_EQ(found.steps.size(), 2U);
  EXPECT_TRUE(seen_spans(found, 2, 0).empty());
  EXPECT_EQ(describe(losses_of({}, found, 0)), "no records lost");
}

TEST(Losses, a_step_without_records_of_an_op_says_nothing_of_its_time) {
  ActivityLog log;
  log.names = {"gemm"};
  // Op 0 in training steps 0, 2 and 3; op 1 in all; op 2 never: it does nothing on the device.
  std::uint32_t call = 0;
  for (const int step : {0, 1, 2, 3})
    for (const std::uint32_t op : {0U, 1U}) {
      ++call;
      log.tags.push_back({call, make_tag(step, {op})});
      if (op == 0 && step == 1) continue;
      const std::int64_t start = 1000 * call;
      log.device.push_back(kernel(call, start, start + 40 + step));
    }
  const Attribution found = attribute(log, 4, 3);
  EXPECT_EQ(seen_spans(found, 0, 0), (std::vector{40_ns, 42_ns, 43_ns}));
  EXPECT_EQ(median(seen_spans(found, 0, 0)), 42_ns);  // with a 0 among them it would be 40
  EXPECT_EQ(losses_of(log, found, 0).incomplete_ops, 1U);
  EXPECT_FALSE(losses_of(log, found, 0).exact());
  EXPECT_TRUE(losses_of(log, found, 2).exact());  // the counted training steps are whole
  log.dropped = 5;
  Losses both = losses_of(log, found, 0);
  both += losses_of(log, found, 2);
  EXPECT_EQ(describe(both), "10 records dropped, 1 ops not seen in every training step");
}

class LogFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        std::filesystem::temp_directory_path() / ("superneurons-log-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

TEST_F(LogFile, is_read_back) {
  ActivityLog log = two_steps();
  log.names[0] = "void gemm<\"a\\b\">\n";
  log.tags.pop_back();
  log.dropped = 3;
  ASSERT_TRUE(write_activity_log(log, path("log")));
  EXPECT_FALSE(std::filesystem::exists(path("log.tmp")));
  const auto read = read_activity_log(path("log"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->dropped, 3);
  ASSERT_EQ(read->device.size(), 6U);
  EXPECT_EQ(read->names.at(read->device[0].name), "void gemm<\"a\\b\">");
  const Attribution found = attribute(*read, 2, 2);
  EXPECT_EQ(found.orphans, 1U);
  EXPECT_EQ(found.steps[0][1].span, 90_ns);
}

TEST_F(LogFile, that_cannot_be_written_leaves_nothing_behind) {
  EXPECT_FALSE(write_activity_log(two_steps(), path("none/log")));
  std::filesystem::create_directory(path("log"));
  std::ofstream(path("log/in_the_way"));
  EXPECT_FALSE(write_activity_log(two_steps(), path("log")));  // a folder: cannot be replaced
  EXPECT_FALSE(std::filesystem::exists(path("log.tmp")));
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  std::filesystem::create_symlink("/dev/full", path("full.tmp"));
  EXPECT_FALSE(write_activity_log(two_steps(), path("full")));  // no space left on device
  EXPECT_FALSE(std::filesystem::is_symlink(path("full.tmp")));
  EXPECT_FALSE(std::filesystem::exists(path("full")));
}

TEST(ActivityLogText, that_is_damaged_is_refused_with_its_line) {
  const std::string line =
      R"({"tag":-1,"name":"k","correlation":1,"stream":0,"start":5,"end":9,"kernel":true})"
      "\n";
  const std::string end = R"({"r":"end","activities":1,"dropped":0})"
                          "\n";
  ASSERT_TRUE(parse_activity_log(line + end, "log"));
  const std::tuple<std::string, int, std::string> cases[] = {
      {"", 0, "cut off after 0 activities"},
      {line, 1, "cut off after 1 activities"},
      {line + line + end, 3, "states 1 activities, the file has 2"},
      {line + end + line, 3, "follows the end record"},
      {line + "x\n" + end, 2, "syntax error"},
      {R"({"tag":-1})"
       "\n",
       1, "lacks \"name\""},
      {R"({"tag":-1,"name":"k","correlation":1,"stream":0,"start":9,"end":5,"kernel":true})", 1,
       "ends before it starts"},
  };
  for (const auto& [text, number, says] : cases) {
    const auto log = parse_activity_log(text, "log");
    ASSERT_FALSE(log) << text;
    EXPECT_EQ(log.error().line, number) << log.error().message;
    EXPECT_NE(log.error().message.find(says), std::string::npos) << log.error().message;
  }
}

TEST(TraceOfActivities, has_one_op_per_kernel_or_copy_in_launch_order) {
  ActivityLog log;
  log.names = {"gemm", "memcpy"};
  // On another stream call 3 started before call 2.
  log.device = {kernel(3, 100, 130), kernel(2, 120, 180), {1, 1, 7, {50}, {90}, false}};
  const auto trace = trace_from_activities(log, "program");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_FALSE(find_fault(*trace));
  ASSERT_EQ(trace->ops.size(), 3U);
  EXPECT_EQ(trace->ops[0].kind, "memcpy");
  EXPECT_EQ(trace->ops[0].name, "0.memcpy");
  EXPECT_EQ(trace->ops[1].kind, "kernel");
  EXPECT_EQ(trace->ops[1].choices[0].ns, 60_ns);
  EXPECT_EQ(trace->ops[2].choices[0].ns, 30_ns);
  EXPECT_EQ(trace->step_ns_traced, 130_ns);  // 50 to 180
  EXPECT_EQ(trace->capability(Fact::durations), Capability::exact);
  EXPECT_EQ(trace->capability(Fact::accesses), Capability::none);
  EXPECT_EQ(trace->capability(Fact::frees), Capability::none);
  EXPECT_TRUE(parse_trace(format_trace(*trace), "text"));
}

TEST(TraceOfActivities, is_honest_about_what_is_missing) {
  ActivityLog log = two_steps();
  log.dropped = 1;
  const auto trace = trace_from_activities(log, "program");
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->capability(Fact::durations), Capability::inferred);
  EXPECT_EQ(trace->dropped_records, 1);
  const auto nothing = trace_from_activities({}, "program");
  ASSERT_FALSE(nothing);
  EXPECT_NE(nothing.error().message.find("did nothing on a GPU"), std::string::npos);
}

}  // namespace
}  // namespace superneurons
