#include "cli/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "ir/files.h"
#include "ir/plan_io.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "memory/placement.h"
#include "replay/scale.h"
#include "simulator/outcome.h"

namespace superneurons {

int exit_code_of(const Error& error) {
  switch (error.code) {
    case ErrorCode::does_not_fit:
    case ErrorCode::not_equal:
    case ErrorCode::unlawful:
      return 1;
    case ErrorCode::cancelled:
      return 130;
    default:
      return 2;
  }
}

void print_error(const Error& error) {
  std::string where;
  if (!error.file.empty()) where = error.file + ":";
  if (error.line > 0) where += fmt::format("{}:", error.line);
  if (!where.empty()) where += ' ';
  fmt::print(stderr, "superneurons: {}{}\n", where, error.message);
}

void print_progress(const std::string& line) {
  if (isatty(STDERR_FILENO)) fmt::print(stderr, "  {}\n", line);
}

CLI::App* add_command(CLI::App& app, Session& session, const std::string& name,
                      const std::string& summary, std::function<Status()> work) {
  CLI::App* command = app.add_subcommand(name, summary);
  command->callback([&session, work = std::move(work)] {
    const Status status = work();
    if (status) return;
    print_error(status.error());
    session.exit_code = exit_code_of(status.error());
  });
  return command;
}

void add_target_options(CLI::App& command, Target& target, bool with_budget) {
  command
      .add_option("trace", target.trace, "trace file (.jsonl or .jsonl.gz, - for standard input)")
      ->required();
  command
      .add_option("--device,--profile", target.profile,
                  "device profile: a name of `superneurons devices`, or a file")
      ->capture_default_str();
  if (!with_budget) return;
  command.add_option(
      "--budget", target.budget,
      "device memory: 12GiB, 800MiB, or 60% of the liveness peak (default: all of it)");
  command.add_option("--host-budget", target.host_budget,
                     "pinned host memory (default: the profile's)");
  command.add_option("--allocator", target.allocator, "how ranges are placed in the arena")
      ->capture_default_str();
  command
      .add_option("--scale-bytes", target.scale,
                  "divide all sizes, e.g. 1/1024, to replay a large trace on a small machine")
      ->capture_default_str();
}

std::vector<std::pair<std::string, std::string>> profile_files() {
  namespace fs = std::filesystem;
  std::vector<std::pair<std::string, std::string>> found;
  std::error_code ignored;
  const fs::path installed =
      fs::read_symlink("/proc/self/exe", ignored).parent_path() / "../share/superneurons/profiles";
  for (const fs::path& folder : {fs::path(SUPERNEURONS_SOURCE_DIR "/traces/profiles"), installed}) {
    for (const auto& entry : fs::directory_iterator(folder, ignored))
      if (entry.path().extension() == ".json")
        found.emplace_back(entry.path().stem().string(), entry.path().string());
    if (!found.empty()) break;
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<DeviceProfile> find_profile(const std::string& name) {
  if (name.find('/') != std::string::npos || name.ends_with(".json")) return read_profile(name);
  std::vector<std::string> names;
  for (const auto& [known, file] : profile_files()) {
    if (known == name) return read_profile(file);
    names.push_back(known);
  }
  const std::string near = nearest_name(name, names);
  return Error{
      .code = ErrorCode::bad_usage,
      .message = fmt::format("no device profile '{}' ({}`superneurons devices` lists them)", name,
                             near.empty() ? "" : "did you mean '" + near + "'? ")};
}

namespace {

Error bad_scale(const std::string& text) {
  return {.code = ErrorCode::bad_usage,
          .message = fmt::format("--scale-bytes '{}' is not of the form 1/1024", text)};
}

Result<Trace> scaled(Trace trace, const std::string& text) {
  if (text == "1") return trace;
  char* end = nullptr;
  if (!text.starts_with("1/")) return bad_scale(text);
  const long long divisor = std::strtoll(text.c_str() + 2, &end, 10);
  if (*end || divisor < 1 || divisor > (1LL << 40)) return bad_scale(text);
  return scale_bytes(trace, 1, divisor);
}

}  // namespace

Result<Loaded> load(const Target& target) {
  Result<Trace> trace = read_trace(target.trace);
  if (!trace) return trace.error();
  Result<DeviceProfile> profile = find_profile(target.profile);
  if (!profile) return profile.error();
  Result<Trace> sized = scaled(std::move(*trace), target.scale);
  if (!sized) return sized.error();
  return Loaded{std::move(*sized), std::move(*profile)};
}

Predict predictor(const Trace& trace, const DeviceProfile& profile) {
  return [&trace, &profile](const Plan& plan) -> Result<Prediction> {
    const Result<Outcome> outcome = evaluate(trace, plan, profile);
    if (!outcome) return outcome.error();
    return Prediction{outcome->step_ns, outcome->live_peak_bytes, outcome->placed_peak_bytes};
  };
}

Result<Budget> budget_of(const Target& target, const Loaded& loaded, const std::string& text) {
  Budget budget{loaded.profile.device_memory, loaded.profile.host_memory};
  if (!target.host_budget.empty()) {
    const auto host = parse_bytes(target.host_budget);
    if (!host) return host.error();
    budget.host = *host;
  }
  if (text.empty()) return budget;
  if (!text.ends_with('%')) {
    const auto device = parse_bytes(text);
    if (!device) return device.error();
    budget.device = *device;
    return budget;
  }
  char* end = nullptr;
  const double percent = std::strtod(text.c_str(), &end);
  if (std::string_view(end) != "%" || !(percent > 0) || percent > 1000)
    return Error{.code = ErrorCode::bad_usage,
                 .message = fmt::format("budget '{}' is not a percentage such as 60%", text)};
  const PlanRequest request{.policy = "liveness",
                            .budget = {Bytes{std::int64_t{1} << 60}, budget.host},
                            .allocator = target.allocator};
  const auto plan =
      make_plan(loaded.trace, loaded.profile, request, predictor(loaded.trace, loaded.profile));
  if (!plan) return plan.error();
  const auto peak = smallest_arena(loaded.trace, *plan);
  if (!peak) return peak.error();
  budget.device = {static_cast<std::int64_t>(static_cast<double>(peak->count) * percent / 100)};
  return budget;
}

void add_plan_options(CLI::App& command, PlanSource& source) {
  auto* policy = command.add_option(
      "--policy", source.policy,
      "a policy or composition of `superneurons policies`, passes joined by +, or exec:COMMAND");
  auto* file =
      command.add_option("--plan", source.plan_file, "a plan made before, instead of a policy");
  policy->excludes(file);
  file->excludes(policy);
}

Result<Plan> plan_from(const PlanSource& source, const Target& target, const Loaded& loaded,
                       const Session& session) {
  if (source.plan_file.empty()) {
    if (source.policy.empty())
      return Error{.code = ErrorCode::bad_usage, .message = "give --policy NAME or --plan FILE"};
    const auto budget = budget_of(target, loaded, target.budget);
    if (!budget) return budget.error();
    return make_plan(loaded.trace, loaded.profile,
                     {.policy = source.policy,
                      .budget = *budget,
                      .allocator = target.allocator,
                      .explain = source.explain,
                      .stop = &session.stop},
                     predictor(loaded.trace, loaded.profile));
  }
  auto plan = read_plan(source.plan_file);
  if (!plan) return plan;
  const std::string hash = trace_hash(loaded.trace);
  if (plan->trace_hash != hash)
    return Error{.code = ErrorCode::bad_input,
                 .message = fmt::format("was made for trace {}, not for {} with hash {}",
                                        plan->trace_hash, target.trace, hash),
                 .file = source.plan_file};
  if (!target.budget.empty()) {
    const auto budget = budget_of(target, loaded, target.budget);
    if (!budget) return budget.error();
    plan->budget = *budget;
  }
  return plan;
}

Status write_json(const std::string& file, const std::string& text) {
  if (file.empty()) return Ok{};
  return write_file(file, text);
}

}  // namespace superneurons
