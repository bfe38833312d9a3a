// What a tracer saw of our own recordings, from values written by hand: correlation, losses, the
// log's file.
#include "tracer/activity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tracer/activity_log.h"

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

TEST_F(LogFile, has_a_line_per_activity_in_order_of_start_and_an_end_record) {
  ActivityLog log = two_steps();
  log.names[0] = "void gemm<\"a\\b\">\n";
  log.tags.pop_back();
  log.dropped = 3;
  ASSERT_TRUE(write_activity_log(log, path("log")));
  EXPECT_FALSE(std::filesystem::exists(path("log.tmp")));
  std::ifstream file(path("log"));
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str().substr(0, text.str().find('\n')),
            R"({"tag":4294967296,"name":"void gemm<\"a\\b\">","correlation":10,"stream":7,)"
            R"("start":0,"end":100,"kernel":true})");
  EXPECT_NE(text.str().find(R"({"tag":-1,"name":"add","correlation":21)"), std::string::npos);
  EXPECT_NE(text.str().find("\n{\"r\":\"end\",\"activities\":6,\"dropped\":3}\n"),
            std::string::npos);
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

}  // namespace
}  // namespace superneurons
