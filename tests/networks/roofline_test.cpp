#include "networks/roofline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "ir/profile_io.h"
#include "networks/fit_costs.h"
#include "networks/network.h"

namespace superneurons {
namespace {

namespace fs = std::filesystem;

DeviceProfile toy() {
  DeviceProfile profile;
  profile.name = "toy";
  profile.device = "Toy";
  profile.flops_per_ns = 1000;
  profile.tf32_flops_per_ns = 5000;
  profile.memory_bytes_per_ns = 100;
  return profile;
}

/// Efficiencies that the fit is to find again.
std::map<std::string, Efficiency> truth() {
  return {{"Conv2dForward/transform", {0.8, 0.5, 3000_ns}},
          {"Conv2dForward/direct", {0.4, 0.9, 2000_ns}},
          {"Conv2dForward/1x1", {0.7, 1.2, 1000_ns}},
          {"Conv2dForward/1x1/s", {0.6, 1.1, 1500_ns}},
          {"ReluForward", {1, 1.5, 700_ns}},
          {"", {0.5, 0.8, 900_ns}}};
}

Trace lowered(std::string_view network, std::int64_t batch, bool tf32 = false) {
  Result<Network> net = find_network(network);
  EXPECT_TRUE(net);
  Result<Trace> trace = lower(*net, {.batch = batch, .tf32 = tf32});
  EXPECT_TRUE(trace);
  return *std::move(trace);
}

/// A trace as if recorded on a device with these efficiencies.
Trace recorded(std::string_view network, std::int64_t batch, const DeviceProfile& on,
               bool tf32 = false) {
  Trace trace = lowered(network, batch, tf32);
  estimate_durations(trace, on);
  trace.device = on.device;
  trace.capabilities[static_cast<std::size_t>(Fact::durations)] = Capability::exact;
  return trace;
}

DeviceProfile true_toy() {
  DeviceProfile profile = toy();
  profile.efficiency = truth();
  return profile;
}

const Op& op_named(const Trace& trace, std::string_view name) {
  const auto found = std::find_if(trace.ops.begin(), trace.ops.end(),
                                  [&](const Op& op) { return op.name == name; });
  EXPECT_NE(found, trace.ops.end()) << name;
  return found == trace.ops.end() ? trace.ops.front() : *found;
}

TEST(Roofline, TheGradientOfImagesCostsAboutWhatTheirForwardDoes) {
  Result<Network> net = find_network("alexnet");
  ASSERT_TRUE(net);
  const Result<Trace> trace = lower(*net, {.batch = 128, .lowering = Lowering::paper});
  ASSERT_TRUE(trace);
  const auto time = [&](std::string_view name) {
    const Op& op = op_named(*trace, name);
    return roofline_time(op, op.choices.front(), toy()).count;
  };
  // Both gradients of 3 channels: each about a forward, not tiles that are empty but for 3 rows.
  EXPECT_LT(time("conv1.backward"), 4 * time("conv1.forward"));
  EXPECT_GT(time("conv1.backward"), time("conv1.forward"));
}

TEST(Fit, FindsTheRatesThatTimesWereMadeWith) {
  const std::vector<Trace> traces = {recorded("resnet50", 16, true_toy()),
                                     recorded("resnet50", 32, true_toy()),
                                     recorded("vgg16", 8, true_toy())};
  const std::vector<const Trace*> all = {&traces[0], &traces[1], &traces[2]};
  const auto found = fit_efficiency(all, toy());
  ASSERT_TRUE(found) << found.error().message;
  for (const auto& [key, expected] : truth()) {
    if (key.empty()) continue;  // here the mean over everything
    ASSERT_TRUE(found->count(key)) << key;
    const Efficiency& efficiency = found->at(key);
    EXPECT_NEAR(efficiency.bandwidth, expected.bandwidth, 0.02 * expected.bandwidth) << key;
    EXPECT_NEAR(static_cast<double>(efficiency.floor_ns.count),
                static_cast<double>(expected.floor_ns.count), 50)
        << key;
    if (key == "ReluForward") continue;  // memory alone bounds it
    EXPECT_NEAR(efficiency.flops, expected.flops, 0.02 * expected.flops) << key;
  }
}

TEST(Fit, PredictsWhatItHasNotSeen) {
  const std::vector<Trace> traces = {recorded("resnet50", 16, true_toy()),
                                     recorded("resnet101", 8, true_toy()),
                                     recorded("resnet101", 32, true_toy())};
  const auto errors = held_out_errors(traces, toy());
  ASSERT_TRUE(errors) << errors.error().message;
  ASSERT_EQ(errors->size(), 5u) << "three networks, two batches";
  EXPECT_EQ((*errors)[0].held_out, "network");
  EXPECT_EQ((*errors)[0].fitted_on, 2u);
  EXPECT_EQ((*errors)[2].held_out, "batch");
  EXPECT_EQ((*errors)[2].fitted_on, 2u);
  for (const CostError& error : *errors) {
    EXPECT_LT(std::abs(error.total()), 0.03) << error.trace;
    EXPECT_LT(error.median, 0.01) << error.trace;
    EXPECT_LE(error.median, error.p90);
  }
}

TEST(Fit, ErrorsAreOfWhatWasMeasured) {
  Trace trace = recorded("small_cnn", 4, true_toy());
  CostError error = cost_error(trace, true_toy());
  EXPECT_EQ(error.ops, trace.ops.size());
  EXPECT_EQ(error.predicted, error.measured);
  EXPECT_EQ(error.absolute, 0);
  for (Op& op : trace.ops) op.choices[0].ns.count *= 2;
  error = cost_error(trace, true_toy());
  EXPECT_NEAR(error.total(), -0.5, 1e-9);
  EXPECT_NEAR(error.absolute, 0.5, 1e-9);
  EXPECT_NEAR(error.p90, 0.5, 1e-9);
}

TEST(Fit, KeepsWithinWhatADeviceCanDo) {
  Trace trace = recorded("resnet50", 16, true_toy());
  for (Op& op : trace.ops) op.choices[0].ns = {1};  // faster than the peak allows
  const Trace* const all[] = {&trace};
  const auto found = fit_efficiency(all, toy());
  ASSERT_TRUE(found);
  for (const auto& [key, efficiency] : *found) {
    EXPECT_LE(efficiency.flops, 1) << key;
    EXPECT_LE(efficiency.bandwidth, 2) << key;
    EXPECT_GE(efficiency.floor_ns, 0_ns) << key;
  }
}

TEST(Fit, TellsTf32FromFp32) {
  DeviceProfile device = true_toy();
  device.efficiency["Conv2dForward/1x1+tf32"] = {0.3, 1, 1100_ns};
  const std::vector<Trace> traces = {recorded("resnet50", 16, device),
                                     recorded("resnet50", 16, device, true)};
  const std::vector<const Trace*> all = {&traces[0], &traces[1]};
  const auto found = fit_efficiency(all, toy());
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->at("Conv2dForward/1x1+tf32").flops, 0.3, 0.01);
  EXPECT_NEAR(found->at("Conv2dForward/1x1").flops, 0.7, 0.02);
}

TEST(Fit, RefusesTracesWithoutTimesOfTheDevice) {
  const Trace good = recorded("small_cnn", 4, true_toy());
  const auto message = [&](const Trace& trace, const DeviceProfile& profile) {
    const Trace* const all[] = {&good, &trace};
    const auto found = fit_efficiency(all, profile);
    return found ? std::string() : found.error().message;
  };
  EXPECT_EQ(message(good, toy()), "");
  Trace estimated = good;
  estimated.device.clear();
  EXPECT_NE(message(estimated, toy()).find("on no device"), std::string::npos);
  Trace partly = good;
  partly.capabilities[static_cast<std::size_t>(Fact::durations)] = Capability::inferred;
  EXPECT_NE(message(partly, toy()).find("not all"), std::string::npos);
  Trace other = good;
  other.device = "Other";
  EXPECT_NE(message(other, toy()).find("Other"), std::string::npos);
  Trace empty = good;
  empty.ops.clear();
  EXPECT_NE(message(empty, toy()).find("no ops"), std::string::npos);
  DeviceProfile unknown = toy();
  unknown.flops_per_ns = 0;
  EXPECT_NE(message(good, unknown).find("flops_per_ns"), std::string::npos);
}

TEST(Roofline, AFusedOpCostsWhatItsPartsCost) {
  Result<Network> net = find_network("vgg16");
  ASSERT_TRUE(net);
  Result<Trace> native = lower(*net, {.batch = 4});
  Result<Trace> paper = lower(*net, {.batch = 4, .lowering = Lowering::paper});
  ASSERT_TRUE(native && paper);
  DeviceProfile profile = true_toy();
  profile.efficiency["Conv2dBackwardFilter"] = {0.3, 0.6, 0_ns};
  estimate_durations(*native, profile);
  estimate_durations(*paper, profile);
  std::int64_t parts = 0;
  for (const Op& op : native->ops)
    if (op.layer == "conv3_1" && op.kind.starts_with("Conv2dBackward"))
      parts += op.choices[0].ns.count;
  std::int64_t fused = 0;
  for (const Op& op : paper->ops)
    if (op.layer == "conv3_1" && op.kind == "Conv2dBackward") fused = op.choices[0].ns.count;
  ASSERT_GT(parts, 0);
  EXPECT_NEAR(static_cast<double>(fused), static_cast<double>(parts), 3);
}

TEST(Roofline, TheMostTellingEfficiencyCounts) {
  const Work work{.kind = "Conv2dForward", .variant = "1x1", .tf32 = true};
  EXPECT_EQ(efficiency_keys(work),
            (std::vector<std::string>{"Conv2dForward/1x1+tf32", "Conv2dForward+tf32",
                                      "Conv2dForward/1x1", "Conv2dForward", ""}));
  EXPECT_EQ(efficiency_keys(Work{.kind = "Copy"}), (std::vector<std::string>{"Copy", ""}));
}

TEST(Scaling, MemoryBoundOpsFollowBandwidthAndProductsFollowArithmetic) {
  const DeviceProfile from = toy();
  DeviceProfile to = toy();
  to.device = "Narrow";
  to.memory_bytes_per_ns = from.memory_bytes_per_ns / 4;
  const Trace before = recorded("vgg16", 4, from);
  Trace narrow = before;
  ASSERT_TRUE(scale_to_device(narrow, from, to));
  EXPECT_EQ(narrow.device, "Narrow");
  EXPECT_EQ(narrow.capability(Fact::durations), Capability::inferred);
  EXPECT_NE(narrow.origin.find("scaled from Toy to Narrow"), std::string::npos);
  const auto ratio = [&](const Trace& after, const char* name) {
    return static_cast<double>(op_named(after, name).choices[0].ns.count) /
           static_cast<double>(op_named(before, name).choices[0].ns.count);
  };
  EXPECT_NEAR(ratio(narrow, "relu1_1.forward"), 4, 0.01);
  EXPECT_LT(ratio(narrow, "conv5_1.forward"), 1.5);
  DeviceProfile slow = toy();
  slow.device = "Slow";
  slow.flops_per_ns = from.flops_per_ns / 10;
  Trace later = before;
  ASSERT_TRUE(scale_to_device(later, from, slow));
  EXPECT_NEAR(ratio(later, "relu1_1.forward"), 1, 0.01);
  EXPECT_GT(ratio(later, "conv5_1.forward"), 8);
}

TEST(Scaling, ToTheSameRatesChangesNoTime) {
  const Trace before = recorded("resnet50", 4, true_toy());
  DeviceProfile twin = toy();
  twin.device = "Twin";
  Trace after = before;
  ASSERT_TRUE(scale_to_device(after, true_toy(), twin)) << "its efficiencies are taken over";
  for (std::size_t i = 0; i < before.ops.size(); ++i)
    EXPECT_EQ(after.ops[i].choices[0].ns, before.ops[i].choices[0].ns) << before.ops[i].name;
  EXPECT_FALSE(find_fault(after));
}

TEST(Scaling, IsRefusedWithoutRates) {
  Trace trace = recorded("small_cnn", 4, toy());
  DeviceProfile unknown = toy();
  unknown.memory_bytes_per_ns = 0;
  EXPECT_FALSE(scale_to_device(trace, toy(), unknown));
  EXPECT_FALSE(scale_to_device(trace, unknown, toy()));
}

/// All profiles that come with the program.
std::vector<std::string> profile_files() {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(SUPERNEURONS_SOURCE_DIR "/traces/profiles"))
    files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

TEST(Profiles, ThatComeWithTheProgramAreWholeAndSayWhereTheyAreFrom) {
  std::vector<std::string> names;
  for (const std::string& file : profile_files()) {
    const auto profile = read_profile(file);
    ASSERT_TRUE(profile) << file << ": " << profile.error().message;
    names.push_back(profile->name);
    EXPECT_EQ(profile->name, fs::path(file).stem().string());
    EXPECT_FALSE(profile->device.empty()) << file;
    const bool sheet = profile->origin.find("Not measured.") != std::string::npos;
    EXPECT_NE(profile->measured, sheet) << file << " is measured or from a data sheet";
    EXPECT_GE(profile->device_memory, 12_GiB) << file;
    EXPECT_GT(profile->host_memory, 0_B) << file;
    EXPECT_GT(profile->memory_bytes_per_ns, 10 * profile->offload.bytes_per_ns)
        << file << ": device memory is far faster than the link";
    EXPECT_GT(profile->flops_per_ns, profile->memory_bytes_per_ns) << file;
    EXPECT_TRUE(profile->tf32_flops_per_ns == 0 ||
                profile->tf32_flops_per_ns >= profile->flops_per_ns)
        << file;
    EXPECT_GT(profile->both_bytes_per_ns, profile->offload.bytes_per_ns) << file;
    EXPECT_LE(profile->both_bytes_per_ns,
              profile->offload.bytes_per_ns + profile->prefetch.bytes_per_ns)
        << file;
    for (const Nanoseconds ns : {profile->launch_ns, profile->copy_issue_ns, profile->event_ns,
                                 profile->gap_ns, profile->wait_ns, profile->alloc_ns})
      EXPECT_GT(ns, 0_ns) << file;
    for (const auto& [key, efficiency] : profile->efficiency) {
      EXPECT_LE(efficiency.flops, 1) << file << " " << key;
      EXPECT_LE(efficiency.bandwidth, 2) << file << " " << key;
    }
    EXPECT_TRUE(profile->efficiency.count("Conv2dForward")) << file;
    EXPECT_TRUE(profile->efficiency.count("")) << file;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a100-40gb", "h200", "k40c-12gb", "rtx4090",
                                             "titan-xp", "v100-16gb"}));
}

TEST(Profiles, CopiesNeverGetCheaperWithSizeNorFasterThanTheLink) {
  for (const std::string& file : profile_files()) {
    const auto profile = read_profile(file);
    ASSERT_TRUE(profile);
    if (profile->measured) continue;  // small measured copies have noise
    for (const TransferCurve* curve : {&profile->offload, &profile->prefetch}) {
      Nanoseconds before{};
      for (std::int64_t size = 1; size < (std::int64_t{1} << 36); size *= 3) {
        const Nanoseconds ns = transfer_time(*curve, {size});
        EXPECT_GE(ns, before) << file << " " << size;
        EXPECT_GE(static_cast<double>(ns.count) * curve->bytes_per_ns,
                  0.999 * static_cast<double>(size))
            << file;
        before = ns;
      }
    }
  }
}

}  // namespace
}  // namespace superneurons
