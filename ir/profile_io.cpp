#include "ir/profile_io.h"

#include <algorithm>
#include <cmath>

#include "ir/files.h"
#include "ir/record.h"

namespace superneurons {

template <class Archive, class CurveType>
requires std::is_same_v<std::remove_const_t<CurveType>, TransferCurve>
void fields(Archive& archive, CurveType& curve) {
  archive.required("points", curve.points);
  archive.required("bytes_per_ns", curve.bytes_per_ns);
}

template <class Archive, class InterferenceType>
requires std::is_same_v<std::remove_const_t<InterferenceType>, Interference>
void fields(Archive& archive, InterferenceType& interference) {
  archive.optional("offload", interference.offload, 0.0);
  archive.optional("prefetch", interference.prefetch, 0.0);
  archive.optional("both", interference.both, 0.0);
}

template <class Archive, class EfficiencyType>
requires std::is_same_v<std::remove_const_t<EfficiencyType>, Efficiency>
void fields(Archive& archive, EfficiencyType& efficiency) {
  archive.required("flops", efficiency.flops);
  archive.required("bandwidth", efficiency.bandwidth);
  archive.optional("floor_ns", efficiency.floor_ns, Nanoseconds{});
}

template <class Archive, class ProfileType>
requires std::is_same_v<std::remove_const_t<ProfileType>, DeviceProfile>
void fields(Archive& archive, ProfileType& profile) {
  archive.required("name", profile.name);
  archive.optional("device", profile.device, "");
  archive.required("measured", profile.measured);
  archive.optional("origin", profile.origin, "");
  archive.required("device_memory", profile.device_memory);
  archive.required("host_memory", profile.host_memory);
  archive.required("offload", profile.offload);
  archive.required("prefetch", profile.prefetch);
  archive.optional("both_bytes_per_ns", profile.both_bytes_per_ns, 0.0);
  archive.optional("memory_bound", profile.memory_bound);
  archive.optional("compute_bound", profile.compute_bound);
  archive.optional("launch_ns", profile.launch_ns, Nanoseconds{});
  archive.optional("copy_issue_ns", profile.copy_issue_ns, Nanoseconds{});
  archive.optional("event_ns", profile.event_ns, Nanoseconds{});
  archive.optional("gap_ns", profile.gap_ns, Nanoseconds{});
  archive.optional("wait_ns", profile.wait_ns, Nanoseconds{});
  archive.optional("alloc_ns", profile.alloc_ns, Nanoseconds{});
  archive.optional("pin_ns_per_byte", profile.pin_ns_per_byte, 0.0);
  archive.optional("flops_per_ns", profile.flops_per_ns, 0.0);
  archive.optional("tf32_flops_per_ns", profile.tf32_flops_per_ns, 0.0);
  archive.optional("memory_bytes_per_ns", profile.memory_bytes_per_ns, 0.0);
  archive.optional("efficiency", profile.efficiency);
}

namespace {

constexpr std::string_view kFormat = "superneurons-profile";

// Far outside of what any machine does, and narrow enough that no model of it overflows.
constexpr Nanoseconds kLongestCost{1'000'000'000};          // launch, event, gap, ...
constexpr Nanoseconds kLongestCopy{std::int64_t{1} << 50};  // a measured point: 13 days
constexpr double kLargestSlowdown = 1000;
constexpr double kLeastRate = 1e-6, kLargestRate = 1e9;  // per ns: 1 KB/s, 1 EB/s

bool is_slowdown(double number) { return number >= 0 && number <= kLargestSlowdown; }
bool is_rate(double number) { return number >= kLeastRate && number <= kLargestRate; }

std::string curve_problem(const TransferCurve& curve) {
  if (curve.points.empty()) return "has no points (would be [[bytes, ns], ...])";
  if (!is_rate(curve.bytes_per_ns))
    return "has bytes_per_ns that is not above 0 (would be from 1e-6 to 1e9)";
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    const auto& point = curve.points[i];
    if (point.bytes.count < 0 || point.ns.count < 0) return "has a point with a negative number";
    if (point.ns > kLongestCopy) return "has a point of more than 2^50 ns";
    if (i > 0 && point.bytes <= curve.points[i - 1].bytes)
      return "has points whose bytes do not ascend";
  }
  return {};
}

/// What is wrong with the numbers of a profile, or "".
std::string profile_problem(const DeviceProfile& profile) {
  for (const auto& [name, curve] :
       {std::pair("offload", &profile.offload), std::pair("prefetch", &profile.prefetch)}) {
    const std::string problem = curve_problem(*curve);
    if (!problem.empty()) return '"' + std::string(name) + "\" " + problem;
  }
  if (profile.device_memory.count <= 0) return "\"device_memory\" is not above 0";
  if (profile.host_memory.count < 0) return "\"host_memory\" is negative";
  for (const Nanoseconds ns : {profile.launch_ns, profile.copy_issue_ns, profile.event_ns,
                               profile.gap_ns, profile.wait_ns, profile.alloc_ns})
    if (ns.count < 0 || ns > kLongestCost)
      return "a time is negative or above 1 s (would be from 0 to 1000000000 ns)";
  for (const Interference& loss : {profile.memory_bound, profile.compute_bound})
    if (!is_slowdown(loss.offload) || !is_slowdown(loss.prefetch) || !is_slowdown(loss.both))
      return "a slowdown is negative or above 1000 (time is multiplied by 1 + it)";
  for (const double rate :
       {profile.both_bytes_per_ns, profile.pin_ns_per_byte, profile.flops_per_ns,
        profile.tf32_flops_per_ns, profile.memory_bytes_per_ns})
    if (rate != 0 && !is_rate(rate))
      return "a rate is negative, tiny or huge (would be 0, or from 1e-6 to 1e9 per ns)";
  for (const auto& [kind, efficiency] : profile.efficiency)
    if (!is_rate(efficiency.flops) || !is_rate(efficiency.bandwidth))
      return "the efficiency of \"" + kind + "\" is not above 0 (would be from 1e-6 to 1e9)";
  for (const auto& [kind, efficiency] : profile.efficiency)
    if (efficiency.floor_ns.count < 0 || efficiency.floor_ns > kLongestCost)
      return "the floor of \"" + kind + "\" is negative or above 1 s";
  return {};
}

}  // namespace

Result<DeviceProfile> parse_profile(std::string_view text, const std::string& name) {
  const auto error = [&](std::string problem) {
    return Error{ErrorCode::bad_input, std::move(problem), name};
  };
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return error("is empty (would be one JSON object)");
  if (text.size() > kLongestLine) return error("is too long for a profile");
  JsonDocument json;
  if (auto problem = json.parse(text)) {
    // A trace or a plan has a good header on its first line.
    std::string other = other_layout_problem(text.substr(0, text.find('\n')), "", kFormat);
    if (!other.empty()) return error(std::move(other));
    const auto before = text.substr(0, json.problem_offset());
    return Error{ErrorCode::bad_input, std::move(*problem), name,
                 1 + std::count(before.begin(), before.end(), '\n')};
  }
  if (!json.root().is(JsonKind::object))
    return error("is " + json.root().describe() + " (would be one JSON object)");
  std::string problem = repeated_key_problem(json);
  if (problem.empty()) problem = header_problem(json.root(), kFormat);
  if (!problem.empty()) return error(std::move(problem));
  DeviceProfile profile;
  FieldReader reader(json.root(), "the profile");
  fields(reader, profile);
  problem = reader.problem().empty() ? profile_problem(profile) : reader.problem();
  if (!problem.empty()) return error(std::move(problem));
  return profile;
}

Result<DeviceProfile> read_profile(const std::string& path) {
  std::string text;
  Status status = for_each_line(path, [&](std::string_view line, std::int64_t number) -> Status {
    if (text.size() + line.size() > kLongestLine)
      return Error{ErrorCode::bad_input, "is too long for a profile", path, number};
    text.append(line) += '\n';
    return Ok{};
  });
  if (!status) return std::move(status.error());
  return parse_profile(text, path);
}

std::string format_profile(const DeviceProfile& profile) {
  std::string out;
  FieldWriter writer(out, nullptr, "\n  ");
  writer.required("format", kFormat);
  writer.required("version", kFormatVersion);
  fields(writer, profile);
  writer.close();
  out += '\n';
  return out;
}

Status write_profile(const DeviceProfile& profile, const std::string& path) {
  const std::string problem = profile_problem(profile);
  if (!problem.empty()) return Error{ErrorCode::bad_input, problem, path};
  return write_file(path, format_profile(profile));
}

}  // namespace superneurons
