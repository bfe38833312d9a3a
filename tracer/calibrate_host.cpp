#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tracer/activity.h"
#include "tracer/calibrate.h"

namespace superneurons {
namespace {

using Clock = std::chrono::steady_clock;

Nanoseconds since(Clock::time_point begin) { return {(Clock::now() - begin).count()}; }

/// Median time of `work` over `repeats` calls.
template <class Work>
Nanoseconds time_of(int repeats, const Work& work) {
  std::vector<Nanoseconds> times;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    work();
    times.push_back(since(begin));
  }
  return median(std::move(times));
}

TransferCurve copy_curve(std::byte* to, const std::byte* from, Bytes largest) {
  TransferCurve curve;
  for (std::int64_t bytes = 4096; bytes <= largest.count; bytes *= 4) {
    const Nanoseconds ns =
        time_of(15, [&] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
    curve.points.push_back({{bytes}, std::max(ns, 1_ns)});
  }
  const auto& last = curve.points.back();
  curve.bytes_per_ns = static_cast<double>(last.bytes.count) / static_cast<double>(last.ns.count);
  return curve;
}

/// Bandwidth of two copies in opposite directions at once, both together.
double both_ways(std::byte* a, std::byte* b, std::size_t bytes) {
  const Nanoseconds ns = time_of(5, [&] {
    std::thread other([&] { std::memcpy(a, b, bytes); });
    std::memcpy(b + bytes, a + bytes, bytes);
    other.join();
  });
  return 2.0 * static_cast<double>(bytes) / static_cast<double>(ns.count);
}

/// Time for one thread to hand a value to another that waits on it: what a stream worker costs.
Nanoseconds hand_over_once() {
  constexpr int kRounds = 300;
  std::atomic<int> turn{0};
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) {
      turn.wait(2 * i);
      turn.store(2 * i + 2);
      turn.notify_one();
    }
  });
  const auto begin = Clock::now();
  for (int i = 0; i < kRounds; ++i) {
    turn.store(2 * i + 1);
    turn.notify_one();
    turn.wait(2 * i + 1);
  }
  other.join();
  return {since(begin).count / (2 * kRounds)};
}

/// The quickest of many: whatever else the machine does makes it longer, up to a hundred times.
Nanoseconds hand_over() {
  Nanoseconds least = hand_over_once();
  for (int i = 1; i < 15; ++i) least = std::min(least, hand_over_once());
  return std::max(least, 1_ns);
}

}  // namespace

Status begin_stage(const CalibrateOptions& options, const std::string& name) {
  if (options.stop != nullptr && *options.stop)
    return Error{.code = ErrorCode::cancelled, .message = "stopped while calibrating"};
  if (options.progress) options.progress(name);
  return Ok{};
}

Result<DeviceProfile> calibrate_host(const CalibrateOptions& options) {
  DeviceProfile profile;
  profile.name = options.name.empty() ? "host" : options.name;
  profile.device = "host";
  profile.measured = true;
  profile.origin = options.origin;
  const Bytes memory{static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGE_SIZE)};
  profile.device_memory = {memory.count / 2};
  profile.host_memory = {memory.count / 2};

  constexpr Bytes kLargest = 64_MiB;
  if (Status s = begin_stage(options, "memory copies"); !s) return s.error();
  std::vector<std::byte> a(static_cast<std::size_t>(2 * kLargest.count), std::byte{1});
  std::vector<std::byte> b(static_cast<std::size_t>(2 * kLargest.count), std::byte{2});
  profile.offload = copy_curve(b.data(), a.data(), kLargest);
  if (Status s = begin_stage(options, "memory copies back"); !s) return s.error();
  profile.prefetch = copy_curve(a.data(), b.data(), kLargest);
  if (Status s = begin_stage(options, "memory copies both ways"); !s) return s.error();
  profile.both_bytes_per_ns =
      both_ways(a.data(), b.data(), static_cast<std::size_t>(kLargest.count));
  if (Status s = begin_stage(options, "hand-over between threads"); !s) return s.error();
  profile.wait_ns = hand_over();
  profile.launch_ns = profile.wait_ns;
  profile.copy_issue_ns = profile.wait_ns;
  profile.event_ns = {profile.wait_ns.count / 4};
  profile.alloc_ns = time_of(25, [] {
    std::vector<std::byte> block(1 << 20);
    std::atomic_signal_fence(std::memory_order_seq_cst);
  });
  profile.memory_bytes_per_ns = 2 * profile.offload.bytes_per_ns;
  return profile;
}

}  // namespace superneurons
