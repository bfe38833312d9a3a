#include "cli/session.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "ir/files.h"
#include "ir/plan_io.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "memory/placement.h"
#include "networks/roofline.h"
#include "replay/scale.h"
#include "simulator/outcome.h"

namespace superneurons {

void add_trace_option(cli::Command& command, Target& target) {
  command
      .add_option("trace", target.trace, "trace file (.jsonl or .jsonl.gz, - for standard input)")
      ->required();
}

void add_setting_options(cli::Command& command, Target& target) {
  command.add_option("--device,--profile", target.profile,
                     "device profile: a name of `superneurons devices`, or a file (default: that "
                     "of the device which the trace was measured on, else h200)");
  command.add_option("--host-budget", target.host_budget,
                     "pinned host memory (default: the profile's)");
  command
      .add_option("--allocator", target.allocator,
                  "how ranges are placed in the arena, see `superneurons policies`")
      ->capture_default_str();
  command
      .add_option(
          "--scale-bytes", target.scale,
          "divide all sizes and budgets, e.g. 1/1024, to replay a large trace on a small machine")
      ->capture_default_str();
}

void add_budget_option(cli::Command& command, Target& target) {
  command.add_option(
      "--budget", target.budget,
      "device memory: 12GiB, 800MiB, or 60% of the liveness peak (default: all of it)");
}

std::vector<std::pair<std::string, std::string>> files_in(const std::string& folder,
                                                          std::string_view suffix) {
  namespace fs = std::filesystem;
  std::vector<std::pair<std::string, std::string>> found;
  std::error_code ignored;
  const fs::path installed =
      fs::read_symlink("/proc/self/exe", ignored).parent_path() / "../share/superneurons";
  const fs::path built = SUPERNEURONS_SOURCE_DIR;
  for (const fs::path& place : {installed / folder, built / folder, built / "traces" / folder}) {
    for (const auto& entry : fs::directory_iterator(place, ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.size() > suffix.size() && name.ends_with(suffix))
        found.emplace_back(name.substr(0, name.size() - suffix.size()), entry.path().string());
    }
    if (!found.empty()) break;
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<std::string> find_file(const std::string& name, const std::string& folder,
                              std::string_view suffix, std::string_view what) {
  std::vector<std::string> names;
  for (const auto& [known, file] : files_in(folder, suffix)) {
    if (known == name) return file;
    names.push_back(known);
  }
  std::error_code ignored;
  if (name.find('/') != std::string::npos || std::filesystem::is_regular_file(name, ignored))
    return name;
  const std::string near = nearest_name(name, names);
  return Error{.code = ErrorCode::bad_usage,
               .message = fmt::format("no {} '{}', and no such file ({}there are {})", what, name,
                                      near.empty() ? "" : "did you mean '" + near + "'? ",
                                      fmt::join(names, ", "))};
}

std::vector<std::pair<std::string, std::string>> profile_files() {
  return files_in("profiles", ".json");
}

Result<DeviceProfile> find_profile(const std::string& name) {
  const Result<std::string> file = find_file(name, "profiles", ".json", "device profile");
  if (!file) return file.error();
  return read_profile(*file);
}

std::optional<DeviceProfile> find_profile_of(const std::string& device) {
  if (device.empty()) return std::nullopt;
  for (const auto& [name, file] : profile_files()) {
    Result<DeviceProfile> profile = read_profile(file);
    if (profile && profile->device == device) return std::move(*profile);
  }
  return std::nullopt;
}

Result<DeviceProfile> profile_measured_on(const std::string& device) {
  if (auto profile = find_profile_of(device)) return std::move(*profile);
  return find_profile("h200");
}

namespace {

Error bad_scale(const std::string& text) {
  return {.code = ErrorCode::bad_usage,
          .message = fmt::format("--scale-bytes '{}' is not of the form 1/1024", text)};
}

/// 1024 of "1/1024", 1 of "1".
Result<std::int64_t> divisor_of(const std::string& text) {
  if (text == "1") return 1;
  char* end = nullptr;
  if (!text.starts_with("1/") || text.find_first_not_of("0123456789", 2) != std::string::npos)
    return bad_scale(text);
  const long long divisor = std::strtoll(text.c_str() + 2, &end, 10);
  if (*end || divisor < 1 || divisor > (1LL << 40)) return bad_scale(text);
  return divisor;
}

Result<Trace> scaled(Trace trace, const std::string& text) {
  const auto divisor = divisor_of(text);
  if (!divisor) return divisor.error();
  if (*divisor == 1) return trace;
  return scale_bytes(trace, 1, *divisor);
}

/// A size that was asked for, divided as the sizes of the trace are.
Result<Bytes> scaled_size(const Target& target, const std::string& text) {
  const auto bytes = parse_bytes(text);
  if (!bytes) return bytes;
  const auto divisor = divisor_of(target.scale);
  if (!divisor) return divisor.error();
  return Bytes{(bytes->count + *divisor - 1) / *divisor};
}

Result<DeviceProfile> profile_of(const Target& target, const Trace& trace) {
  if (!target.profile.empty()) return find_profile(target.profile);
  return profile_measured_on(trace.device);
}

Result<double> parse_percent(const std::string& text) {
  char* end = nullptr;
  const double percent = std::strtod(text.c_str(), &end);
  const bool plain = text.find_first_not_of("0123456789.%") == std::string::npos;
  if (!plain || end == text.c_str() || std::string_view(end) != "%")
    return Error{.code = ErrorCode::bad_usage,
                 .message = fmt::format("budget '{}' is not a percentage such as 60%", text)};
  if (!(percent > 0) || percent > 1000)
    return Error{.code = ErrorCode::bad_usage,
                 .message = fmt::format("budget '{}' is not above 0% and up to 1000%", text)};
  return percent;
}

Result<Budget> percent_budget(const Target& target, const Loaded& loaded, Budget budget,
                              const std::string& text) {
  const auto parsed = parse_percent(text);
  if (!parsed) return parsed.error();
  const double percent = *parsed;
  const PlanRequest request{.policy = "liveness",
                            .budget = {Bytes{std::int64_t{1} << 60}, budget.host},
                            .allocator = target.allocator};
  const auto plan =
      make_plan(loaded.trace, loaded.profile, request, predictor(loaded.trace, loaded.profile));
  if (!plan) return plan.error();
  const auto peak = smallest_arena(loaded.trace, *plan);
  if (!peak) return peak.error();
  // Long double: 60 % of a peak must not fall a byte short of what it is on paper.
  budget.device = {static_cast<std::int64_t>(
      std::floor(static_cast<long double>(peak->count) * percent / 100.0L))};
  return budget;
}

}  // namespace

Result<Trace> load_trace(const Target& target) {
  Result<Trace> trace = read_trace(target.trace);
  return trace ? scaled(std::move(*trace), target.scale) : std::move(trace);
}

namespace {

/// Scales the times of the trace to the profile's device, if that was asked for; else says why not.
std::string scale_times(const Target& target, Loaded& loaded) {
  Trace& trace = loaded.trace;
  if (target.profile.empty()) return "";
  const auto from = find_profile_of(trace.device);
  if (!from) return fmt::format("; there is no profile of {} to scale from", trace.device);
  std::string hash = trace_hash(trace);
  std::string device = trace.device;
  const Status scaled = scale_to_device(trace, *from, loaded.profile);
  if (!scaled) return "; " + scaled.error().message;
  loaded.recorded_hash = std::move(hash);
  loaded.scaled_from = std::move(device);
  return "";
}

/// The trace as the profile's device would run it, where that was asked for and can be told.
void fit_to_device(const Target& target, const Session& session, Loaded& loaded) {
  const Trace& trace = loaded.trace;
  const DeviceProfile& profile = loaded.profile;
  if (trace.device == profile.device) return;
  if (trace.device.empty()) {
    if (!target.profile.empty() && trace.capability(Fact::durations) == Capability::inferred &&
        trace.origin.find("cost model of " + profile.name) == std::string::npos)
      session.console.note(fmt::format(
          "the times of the trace are not those of {}: {} (`build --device {}` estimates those)",
          profile.device, trace.origin, target.profile));
    return;
  }
  const std::string why_not = scale_times(target, loaded);
  session.console.note(
      loaded.scaled_from.empty()
          ? fmt::format("ops take as long as they took on {}; only copies and the cost of issuing "
                        "are those of {} (profile {}{})",
                        trace.device, profile.device, profile.name, why_not)
          : fmt::format("op times are scaled from {} to {} by the roofline, not measured there",
                        loaded.scaled_from, profile.device));
}

}  // namespace

Result<Loaded> load(const Target& target, const Session& session) {
  const EndsAtOnce at_once(session);
  Result<Trace> trace = load_trace(target);
  if (!trace) return trace.error();
  Result<DeviceProfile> profile = profile_of(target, *trace);
  if (!profile) return profile.error();
  Loaded loaded{.trace = std::move(*trace), .profile = std::move(*profile)};
  fit_to_device(target, session, loaded);
  return loaded;
}

std::string batch_text(const Trace& trace) {
  return trace.batch > 0 ? fmt::format("batch {}, ", trace.batch) : "";
}

std::string hash_of(const Loaded& loaded) {
  return loaded.recorded_hash.empty() ? trace_hash(loaded.trace) : loaded.recorded_hash;
}

Status check_budget(const std::string& text) {
  if (text.empty())
    return Error{.code = ErrorCode::bad_usage,
                 .message = "a budget is empty (would be like 12GiB)"};
  if (text == "floor") return Ok{};
  if (text.ends_with('%')) {
    const auto percent = parse_percent(text);
    if (!percent) return percent.error();
    return Ok{};
  }
  const auto bytes = parse_bytes(text);
  if (!bytes) return bytes.error();
  return Ok{};
}

Result<Budget> budget_of(const Target& target, const Loaded& loaded, const std::string& text) {
  Budget budget{loaded.profile.device_memory, loaded.profile.host_memory};
  if (!target.host_budget.empty()) {
    const auto host = scaled_size(target, target.host_budget);
    if (!host) return host.error();
    budget.host = *host;
  }
  if (text.empty()) return budget;
  if (text.ends_with('%')) return percent_budget(target, loaded, budget, text);
  const auto device = scaled_size(target, text);
  if (!device) return device.error();
  budget.device = *device;
  return budget;
}

void add_plan_options(cli::Command& command, PlanSource& source) {
  auto* policy = command.add_option(
      "--policy", source.policy,
      "a policy or composition of `superneurons policies`, passes joined by +, or exec:COMMAND");
  auto* file =
      command.add_option("--plan", source.plan_file, "a plan made before, instead of a policy");
  policy->excludes(file);
  file->excludes(policy);
}

Result<Plan> read_plan_for(const std::string& hash, const PlanSource& source,
                           const Target& target) {
  auto plan = read_plan(source.plan_file);
  if (!plan) return plan;
  if (plan->trace_hash == hash) return plan;
  return Error{.code = ErrorCode::bad_input,
               .message = fmt::format("was made for trace {}, not for {} with hash {}",
                                      plan->trace_hash, target.trace, hash),
               .file = source.plan_file};
}

/// The file's plan; --budget and --host-budget, where given, take the place of its own.
Result<Plan> plan_of_file(const PlanSource& source, const Target& target, const Loaded& loaded) {
  auto plan = read_plan_for(hash_of(loaded), source, target);
  if (!plan) return plan;
  if (target.allocator != Target{}.allocator && target.allocator != plan->allocator)
    return Error{.code = ErrorCode::bad_usage,
                 .message = fmt::format("--allocator {} does not go with a plan made for {}",
                                        target.allocator, plan->allocator)};
  if (target.budget == "floor")
    return Error{.code = ErrorCode::bad_usage, .message = "--budget floor goes with --policy"};
  const auto budget = budget_of(target, loaded, target.budget);
  if (!budget) return budget.error();
  if (!target.budget.empty()) plan->budget.device = budget->device;
  if (!target.host_budget.empty()) plan->budget.host = budget->host;
  return plan;
}

Result<Plan> plan_from(const PlanSource& source, const Target& target, const Loaded& loaded,
                       const Session& session) {
  if (source.plan_file.empty() && source.policy.empty())
    return Error{.code = ErrorCode::bad_usage, .message = "give --policy NAME or --plan FILE"};
  if (!source.plan_file.empty()) return plan_of_file(source, target, loaded);
  const bool at_floor = target.budget == "floor";
  const auto budget = budget_of(target, loaded, at_floor ? "" : target.budget);
  if (!budget) return budget.error();
  if (target.budget.empty() && !loaded.trace.device.empty() &&
      loaded.trace.device != loaded.profile.device)
    session.console.note(fmt::format("no --budget: taking the {} of {} (profile {})",
                                     format_bytes(budget->device), loaded.profile.device,
                                     loaded.profile.name));
  PlanRequest request{.policy = source.policy,
                      .budget = *budget,
                      .allocator = target.allocator,
                      .explain = source.explain,
                      .stop = &session.stop};
  const Predict predict = predictor(loaded.trace, loaded.profile, &session.stop);
  if (at_floor) {
    const auto floor = smallest_budget(loaded.trace, loaded.profile, request, predict);
    if (!floor) return floor.error();
    request.budget.device = floor->budget;
  }
  auto plan = make_plan(loaded.trace, loaded.profile, request, predict);
  for (const std::string& remark : idle_passes(loaded.trace, source.policy))
    session.console.note(remark);
  if (plan && !loaded.recorded_hash.empty()) plan->trace_hash = loaded.recorded_hash;
  return plan;
}

}  // namespace superneurons
