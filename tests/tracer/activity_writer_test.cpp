// What the injected library writes while a program runs, without CUPTI and GPU.
#include "tracer/activity_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tracer/from_activities.h"

namespace superneurons {
namespace {

class ActivityFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("superneurons-writer-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

void some_work(ActivityWriter& writer, std::uint32_t calls) {
  for (std::uint32_t call = 1; call <= calls; ++call) {
    const std::int64_t at = 1'000'000 + 100 * call;
    writer.call({call, 9, at, at + 10}, "cudaLaunchKernel");
    writer.work({DeviceWork::kernel, call, 7, at + 50, at + 90, 0}, "void gemm<\"a\\b\">\n\xff");
  }
  writer.flush();
}

TEST_F(ActivityFile, is_read_back_with_times_from_its_base) {
  ActivityWriter writer(path("log"), {17, "./train", 1'000'000});
  writer.memory({true, 0x7f0000000000, 4096, 1'000'020});
  writer.mark({3, 9, true, 1'000'050}, "epoch");
  some_work(writer, 3);
  writer.call({4, 9, 1'000'480, 1'000'490}, "cudaMemcpyAsync");
  writer.work({DeviceWork::copy, 4, 7, 1'000'500, 1'000'600, 64}, "memcpy DtoH");
  writer.mark({3, 9, false, 1'000'700}, "");
  writer.tag({2, 5});
  writer.dropped(2);
  EXPECT_TRUE(writer.finish());
  const auto found = trace_from_activities({.path = path("log")}, "p", {.window = "whole"});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->trace.ops.size(), 4U);
  EXPECT_EQ(found->trace.ops[0].kernels[0].name, "void gemm<\"a\\b\">?");
  EXPECT_EQ(found->trace.ops[0].choices[0].ns, 40_ns);
  EXPECT_EQ(found->trace.tensors.at(0).bytes, 4096_B);
  EXPECT_EQ(found->trace.dropped_records, 2);
  EXPECT_EQ(*count_works(path("log")), 4);
}

TEST_F(ActivityFile, is_there_up_to_the_last_buffer_when_the_program_is_killed) {
  {
    ActivityWriter writer(path("log"), {});
    some_work(writer, 5);
    writer.work({DeviceWork::kernel, 6, 7, 1, 2, 0}, "never flushed");
  }  // as a kill leaves it: no end record
  const auto found = trace_from_activities({.path = path("log")}, "p", {});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_NE(found->remarks.at(1).find("cut off after kernel or copy 4"), std::string::npos);
}

TEST_F(ActivityFile, of_a_program_that_numbers_its_ranges_can_be_read) {
  const std::string long_name(1U << 20, 'x');
  ActivityWriter writer(path("log"), {});
  for (std::uint32_t i = 1; i <= 100; ++i) {
    const std::int64_t at = 100 * i;
    const std::string op = "aten::mul, seq = " + std::to_string(i) + ", sizes = " + long_name;
    writer.mark({2 * i, 9, true, at}, op);
    writer.mark({2 * i + 1, 9, true, at + 1}, std::to_string(i) + long_name);
    writer.call({i, 9, at + 2, at + 10}, "cudaLaunchKernel");
    writer.work({DeviceWork::kernel, i, 7, at + 50, at + 90, 0}, "gemm");
    writer.mark({2 * i + 1, 9, false, at + 20}, "");
    writer.mark({2 * i, 9, false, at + 30}, "");
    writer.flush();
  }
  EXPECT_TRUE(writer.finish());
  const auto found =
      trace_from_activities({.path = path("log")}, "p", {.window = "whole", .range_depth = 1});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->trace.ops.size(), 100U);
  EXPECT_EQ(found->trace.ops.back().kind, "aten::mul");
  EXPECT_LT(std::filesystem::file_size(path("log")), 16U << 20);
}

TEST_F(ActivityFile, counts_work_whose_times_nobody_knows_as_lost) {
  ActivityWriter writer(path("log"), {});
  some_work(writer, 3);
  writer.work({DeviceWork::kernel, 4, 7, 0, 0, 0}, "gemm");
  EXPECT_TRUE(writer.finish());
  const auto found = trace_from_activities({.path = path("log")}, "p", {.window = "whole"});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->trace.ops.size(), 3U);
  EXPECT_EQ(found->trace.dropped_records, 1);
  EXPECT_EQ(found->trace.step_ns_traced, 240_ns);
}

TEST_F(ActivityFile, does_not_come_of_a_process_that_does_nothing_on_a_device) {
  ActivityWriter writer(path("log"), {});
  for (int i = 0; i < 200'000; ++i) writer.mark({1, 9, i % 2 == 0, i}, "a range of the host");
  writer.flush();
  EXPECT_TRUE(writer.finish());
  EXPECT_FALSE(std::filesystem::exists(path("log")));
}

TEST_F(ActivityFile, that_cannot_be_written_whole_is_told) {
  ActivityWriter nowhere(path("none/log"), {});
  some_work(nowhere, 1);
  EXPECT_FALSE(nowhere.finish());
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  ActivityWriter full("/dev/full", {});
  some_work(full, 1);
  EXPECT_FALSE(full.finish());
}

}  // namespace
}  // namespace superneurons
