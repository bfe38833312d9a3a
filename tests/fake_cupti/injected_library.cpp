// The injected tracer in programs that use threads and fork(), without a GPU.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "tests/fake_cupti/fake_cupti.h"
#include "tracer/activity_reader.h"

extern "C" int InitializeInjection() noexcept;
extern "C" int superneurons_trace_start_to(const char* path, char* error,
                                           std::size_t size) noexcept;
extern "C" int superneurons_trace_stop(const char* path) noexcept;

namespace superneurons {
namespace {

namespace fs = std::filesystem;

class Counter final : public ActivityVisitor {
 public:
  Status work(const SeenWork&, std::uint32_t) override { return Ok{}; }
  Status call(const SeenCall&, std::uint32_t, std::string_view) override { return Ok{}; }
  Status memory(const SeenMemory&) override { return Ok{}; }
  Status mark(const SeenMark&, std::uint32_t) override { return Ok{}; }
};

void kernels(std::uint32_t from, std::uint32_t count) {
  for (std::uint32_t i = from; i < from + count; ++i)
    fake_kernel(i, 1000 + 10 * std::int64_t{i}, 1005 + 10 * std::int64_t{i});
}

class InjectedLibrary : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("superneurons-injected-" + std::to_string(getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Runs a program in a process of its own, to its end by exit().
  void run(const std::function<void()>& program) const {
    const pid_t process = fork();
    if (process == 0) {
      setenv("SUPERNEURONS_ACTIVITY_LOG", (folder_ / "log").c_str(), 1);
      program();
      std::exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    EXPECT_EQ(status, 0);
  }
  std::vector<fs::path> files() const { return {fs::directory_iterator(folder_), {}}; }

  fs::path folder_;
};

TEST_F(InjectedLibrary, WritesAWholeLogOfKernelsFromManyThreads) {
  run([] {
    InitializeInjection();
    InitializeInjection();  // the driver may ask again
    std::vector<std::thread> threads;
    for (std::uint32_t i = 0; i < 4; ++i) threads.emplace_back(kernels, 1 + 20'000 * i, 20'000);
    for (std::thread& each : threads) each.join();
  });
  ASSERT_EQ(files().size(), 1U);
  Counter counter;
  const auto end = read_activities(files().front().string(), counter);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_TRUE(end->complete);
  EXPECT_EQ(end->works, 80'000);
}

TEST_F(InjectedLibrary, LeavesWhatChildrenInheritedOutOfTheLog) {
  run([] {
    InitializeInjection();
    kernels(1, 20'000);  // more than a buffer: the file is open
    for (int i = 0; i < 3; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        kernels(30'000, 20'000);  // fills the buffer that it inherited
        std::exit(superneurons_trace_stop(nullptr) == 1 ? 0 : 9);
      }
      int status = 0;
      if (waitpid(child, &status, 0) != child || status != 0) std::exit(1);
    }
    kernels(20'001, 100);
  });
  ASSERT_EQ(files().size(), 1U);
  Counter counter;
  const auto end = read_activities(files().front().string(), counter);
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_TRUE(end->complete);
  EXPECT_EQ(end->works, 20'100);
}

TEST_F(InjectedLibrary, RecordsAgainAfterItWasStopped) {
  const std::string first = (folder_ / "first").string(), second = (folder_ / "second").string();
  run([&] {
    char error[200] = "";
    for (const std::string& path : {first, second}) {
      if (superneurons_trace_start_to(path.c_str(), error, sizeof error) != 0) std::exit(1);
      if (superneurons_trace_start_to(path.c_str(), error, sizeof error) != 1) std::exit(2);
      kernels(1, 5);
      if (superneurons_trace_stop(nullptr) != 0) std::exit(3);
      if (superneurons_trace_stop(nullptr) != 1) std::exit(4);
    }
  });
  for (const std::string& path : {first, second}) {
    Counter counter;
    const auto end = read_activities(path, counter);
    ASSERT_TRUE(end) << end.error().message;
    EXPECT_EQ(end->works, 5);
  }
}

}  // namespace
}  // namespace superneurons
