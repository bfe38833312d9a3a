#include "ir/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "ir/plan_io.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "tests/ir/rich_trace.h"

namespace superneurons {
namespace {

namespace fs = std::filesystem;

/// A folder of its own for each test.
class Files : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::path(testing::TempDir()) /
              (std::string("superneurons-") + test->name() + '-' + std::to_string(::getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::string put(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string bytes_of(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), {}));
  }
  fs::path folder_;
};

/// Many lines that do not compress away.
std::string long_text() {
  std::string text;
  std::uint64_t state = 1;
  for (int i = 0; i < 100000; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    text += std::to_string(state) + '\n';
  }
  return text;
}

TEST_F(Files, RoundTripPlainAndGzipped) {
  const std::string text = long_text() + "no newline\r\n\n \0 at the end";
  for (const std::string name : {"a.txt", "a.gz"}) {
    ASSERT_TRUE(write_file(path(name), text));
    const auto back = read_file(path(name));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(*back, text);
  }
  EXPECT_TRUE(bytes_of("a.gz").starts_with("\x1f\x8b"));
  EXPECT_LT(fs::file_size(path("a.gz")), fs::file_size(path("a.txt")));
  EXPECT_EQ(files(), 2U);
}

TEST_F(Files, GzipIsDeterministicAndReadWhateverItsName) {
  ASSERT_TRUE(write_file(path("a.gz"), "text"));
  ASSERT_TRUE(write_file(path("b.gz"), "text"));
  EXPECT_EQ(bytes_of("a.gz"), bytes_of("b.gz"));
  EXPECT_EQ(*read_file(put("plain-name", bytes_of("a.gz"))), "text");
  EXPECT_EQ(*read_file(put("two.gz", bytes_of("a.gz") + bytes_of("b.gz"))), "texttext");
}

TEST_F(Files, LinesAreNumberedFromOne) {
  std::vector<std::string> lines;
  ASSERT_TRUE(for_each_line(put("a", "x\r\n\ny"), [&](std::string_view text, std::int64_t at) {
    lines.push_back(std::to_string(at) + std::string(text));
    return Status(Ok{});
  }));
  EXPECT_EQ(lines, (std::vector<std::string>{"1x", "2", "3y"}));
}

TEST_F(Files, TraceThatIsNoGzipByItsNameIsRefused) {
  const auto trace = read_trace(put("t.jsonl.gz", format_trace(rich_trace())));
  ASSERT_FALSE(trace);
  EXPECT_NE(trace.error().message.find("not gzip"), std::string::npos);
  const auto empty = read_trace(put("e.jsonl.gz", ""));
  ASSERT_FALSE(empty);
  EXPECT_NE(empty.error().message.find("is empty"), std::string::npos);
  EXPECT_EQ(empty.error().file, path("e.jsonl.gz"));
}

Trace long_trace() {
  Trace trace = rich_trace();
  trace.tensors[1].freed_before.reset();
  for (int i = 0; i < 20000; ++i) {
    Op op;
    op.name = "op" + std::to_string(i * 7919 % 20011);
    op.kind = "Copy";
    op.writes = {{{1}, 0_B, 1_MiB}};
    op.choices = {{.algorithm = "",
                   .math = "",
                   .workspace = {},
                   .ns = {i * 7919 % 10007},
                   .deterministic = true,
                   .omits = {}}};
    trace.ops.push_back(op);
  }
  return trace;
}

TEST_F(Files, CutOffGzipNamesTheLastWholeLineAndOp) {
  ASSERT_TRUE(write_trace(long_trace(), path("whole.jsonl.gz")));
  const std::string bytes = bytes_of("whole.jsonl.gz");
  std::int64_t before = 0;
  for (const std::size_t size : {bytes.size() / 4, bytes.size() / 2, bytes.size() - 9}) {
    const auto trace = read_trace(put("cut.jsonl.gz", bytes.substr(0, size)));
    ASSERT_FALSE(trace);
    EXPECT_EQ(trace.error().code, ErrorCode::bad_input);
    EXPECT_NE(trace.error().message.find("cut off"), std::string::npos) << trace.error().message;
    EXPECT_NE(trace.error().message.find("breaks off after op "), std::string::npos)
        << trace.error().message;
    EXPECT_GT(trace.error().line, before);
    before = trace.error().line;
  }
  for (const std::size_t size : {3U, 12U}) {
    const auto trace = read_trace(put("cut.jsonl.gz", bytes.substr(0, size)));
    ASSERT_FALSE(trace);
    EXPECT_NE(trace.error().message.find("no whole line"), std::string::npos);
  }
}

TEST_F(Files, DamagedGzipIsNoticedWhereverItIs) {
  ASSERT_TRUE(write_trace(rich_trace(), path("whole.jsonl.gz")));
  const std::string bytes = bytes_of("whole.jsonl.gz");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    const auto trace = read_trace(put("damaged.jsonl.gz", damaged));
    // Bytes 4 to 9 of a gzip file are a date and notes, on which nothing depends.
    if (trace) {
      EXPECT_EQ(trace_hash(*trace), trace_hash(rich_trace()));
    }
    EXPECT_TRUE(!trace || at < 10) << at;
  }
}

TEST_F(Files, ALineOfABillionBytesIsRefusedUnread) {
  const std::string file = put("long", "{}\n");
  fs::resize_file(file, 1000000000);  // sparse
  for (const Error& error : {read_trace(file).error(), read_plan(file).error(),
                             for_each_line(file, [](auto...) { return Status(Ok{}); }).error()}) {
    EXPECT_EQ(error.code, ErrorCode::bad_input);
    EXPECT_EQ(error.file, file);
  }
  fs::resize_file(put("long", ""), 1000000000);
  const auto trace = read_trace(file);
  ASSERT_FALSE(trace);
  EXPECT_EQ(trace.error().line, 1);
  EXPECT_NE(trace.error().message.find("longer than 16 MiB"), std::string::npos);
  EXPECT_FALSE(read_profile(file));
}

TEST_F(Files, WhatCannotBeReadIsAnError) {
  for (const std::string& bad : {path("absent"), folder_.string()}) {
    const auto trace = read_trace(bad);
    ASSERT_FALSE(trace);
    EXPECT_EQ(trace.error().code, ErrorCode::io);
    EXPECT_EQ(trace.error().file, bad);
  }
}

TEST_F(Files, WhatCannotBeWrittenLeavesNothing) {
  for (const std::string& bad :
       {path("absent/t.jsonl"), folder_.string(), std::string("/dev/full")}) {
    const auto status = write_trace(rich_trace(), bad);
    ASSERT_FALSE(status) << bad;
    EXPECT_EQ(status.error().code, ErrorCode::io);
    EXPECT_EQ(status.error().file, bad);
  }
  EXPECT_EQ(files(), 0U);
}

TEST_F(Files, AFullDiskLeavesTheOldFileAndNoPart) {
  put("t", "old");
  struct rlimit old {};
  getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small { 1000, old.rlim_max };
  setrlimit(RLIMIT_FSIZE, &small);
  const auto status = write_file(path("t"), std::string(100000, 'x'));
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::io);
  EXPECT_EQ(bytes_of("t"), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(Files, ATraceThatBreaksALawIsNotWritten) {
  Trace trace = rich_trace();
  trace.ops[1].choices.clear();
  const auto status = write_trace(trace, path("t"));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().file, path("t"));
  EXPECT_EQ(files(), 0U);
}

TEST_F(Files, PlansAndProfilesRoundTrip) {
  ASSERT_TRUE(write_plan(rich_plan(), path("p.jsonl.gz")));
  const auto plan = read_plan(path("p.jsonl.gz"));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(format_plan(*plan), format_plan(rich_plan()));
  ASSERT_TRUE(write_profile(rich_profile(), path("d.json")));
  const auto profile = read_profile(path("d.json"));
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_EQ(format_profile(*profile), format_profile(rich_profile()));
}

TEST(Sizes, AreReadWithTheirUnits) {
  const std::pair<const char*, std::int64_t> good[] = {{"12GiB", 12LL << 30},
                                                       {"800MiB", 800LL << 20},
                                                       {"512KiB", 512 << 10},
                                                       {"4096", 4096},
                                                       {"4096B", 4096},
                                                       {"1.5GiB", 3LL << 29},
                                                       {"0", 0},
                                                       {"2TiB", 2LL << 40},
                                                       {"9223372036854775807", INT64_MAX}};
  for (const auto& [text, bytes] : good) {
    const auto parsed = parse_bytes(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->count, bytes) << text;
  }
  for (const char* bad : {"", "GiB", "-1", "12 GiB", "12GB", "1.5", "1..5GiB", "1e3", "x", "nan",
                          "9223372036854775808", "9999999999GiB", "8388608TiB", "8388608.5TiB"}) {
    const auto parsed = parse_bytes(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::bad_usage);
  }
}

TEST(Sizes, ArePrintedShort) {
  EXPECT_EQ(format_bytes(17_B), "17 B");
  EXPECT_EQ(format_bytes(12_KiB), "12 KiB");
  EXPECT_EQ(format_bytes({5830468403}), "5.43 GiB");
  EXPECT_EQ(format_bytes({929248051}), "886.2 MiB");
  EXPECT_EQ(format_bytes({-2048}), "-2 KiB");
  EXPECT_EQ(format_time(7_ns), "7 ns");
  EXPECT_EQ(format_time(4560_ns), "4.56 us");
  EXPECT_EQ(format_time(12300000_ns), "12.3 ms");
  EXPECT_EQ(format_time(2000000000_ns), "2 s");
}

TEST(NearestName, IsGivenOnlyIfNear) {
  const std::vector<std::string> names = {"keep_all", "liveness", "offload", "recompute"};
  EXPECT_EQ(nearest_name("livenes", names), "liveness");
  EXPECT_EQ(nearest_name("ofload", names), "offload");
  EXPECT_EQ(nearest_name("keepall", names), "keep_all");
  EXPECT_EQ(nearest_name("zzz", names), "");
  EXPECT_EQ(nearest_name("", names), "");
}

}  // namespace
}  // namespace superneurons
