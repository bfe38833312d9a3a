#include "policies/exec_policy.h"

#include <fmt/core.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "ir/plan_io.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "policies/child.h"

namespace superneurons {
namespace {

struct ExecRequest {
  std::string command;
  ChildLimits limits;
};

Result<ExecRequest> parse(std::string_view policy) {
  ExecRequest request;
  const std::size_t colon = policy.find(':');
  const std::string_view head = policy.substr(0, colon);
  constexpr std::string_view kTimeout = "exec,timeout=";
  if (head != "exec") {
    double seconds = 0;
    const std::string_view number =
        head.starts_with(kTimeout) ? head.substr(kTimeout.size()) : std::string_view();
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), seconds);
    if (error != std::errc() || end != number.data() + number.size() || !(seconds > 0) ||
        seconds > 86400)
      return Error{
          ErrorCode::bad_usage,
          fmt::format("bad policy '{}' (write exec:COMMAND or exec,timeout=SECONDS:COMMAND "
                      "with at most 86400 seconds)",
                      policy)};
    request.limits.timeout =
        std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000) + 1);
  }
  if (colon != std::string_view::npos) request.command = policy.substr(colon + 1);
  if (request.command.empty() || request.command.find('\0') != std::string::npos)
    return Error{ErrorCode::bad_usage, "exec: names no command (write exec:COMMAND)"};
  return request;
}

/// One JSON value on one line, whatever the layout of its text form.
std::string one_line(const std::string& text) {
  return nlohmann::json::parse(text, nullptr, false)
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

std::string input_of(const Trace& trace, const DeviceProfile& profile, const PlanRequest& request) {
  const nlohmann::json limits = {
      {"trace", trace_hash(trace)},
      {"budget", {{"device", request.budget.device.count}, {"host", request.budget.host.count}}},
      {"allocator", request.allocator}};
  std::string input = format_trace(trace);
  if (!input.ends_with('\n')) input += '\n';
  return input + one_line(format_profile(profile)) + limits.dump() + "\n";
}

Error failed(const ExecRequest& request, const ChildOutcome& outcome, std::string_view how) {
  std::string message = fmt::format("policy command '{}' {}", request.command, how);
  if (!outcome.last_error.empty()) message += fmt::format(" (it says: {})", outcome.last_error);
  return {ErrorCode::bad_input, std::move(message)};
}

std::optional<Error> bad_end(const ExecRequest& request, const ChildOutcome& outcome) {
  switch (outcome.end) {
    case ChildOutcome::End::exited:
      if (outcome.status == 0) return {};
      return failed(request, outcome, fmt::format("failed with exit status {}", outcome.status));
    case ChildOutcome::End::signalled:
      return failed(request, outcome, fmt::format("was killed by signal {}", outcome.status));
    case ChildOutcome::End::timed_out:
      return failed(request, outcome,
                    fmt::format("gave no plan within {:.1f} s",
                                static_cast<double>(request.limits.timeout.count()) / 1000));
    case ChildOutcome::End::too_much_output:
      return failed(request, outcome,
                    fmt::format("wrote more than {} MiB", request.limits.output >> 20));
    case ChildOutcome::End::stopped:
      return Error{ErrorCode::cancelled, "stopped while planning"};
  }
  return {};
}

}  // namespace

bool is_exec(std::string_view policy) {
  return policy == "exec" || policy.starts_with("exec:") || policy.starts_with("exec,");
}

Status check_exec(std::string_view policy) {
  const Result<ExecRequest> request = parse(policy);
  return request ? Status(Ok{}) : Status(request.error());
}

Result<Plan> exec_policy(const Trace& trace, const DeviceProfile& profile,
                         const PlanRequest& request) {
  Result<ExecRequest> exec = parse(request.policy);
  if (!exec) return exec.error();
  exec->limits.stop = request.stop;
  const Result<ChildOutcome> outcome =
      run_child(exec->command, input_of(trace, profile, request), exec->limits);
  if (!outcome) return outcome.error();
  if (std::optional<Error> error = bad_end(*exec, *outcome)) return *error;
  Result<Plan> plan = parse_plan(outcome->output, "its output");
  if (!plan)
    return failed(
        *exec, *outcome,
        fmt::format("answered with exit status 0, but {} is no plan: {}",
                    plan.error().line > 0 ? fmt::format("line {} of its output", plan.error().line)
                                          : "its output",
                    plan.error().message));
  const std::string hash = trace_hash(trace);
  if (plan->trace_hash != hash)
    return failed(
        *exec, *outcome,
        fmt::format("answered with a plan for trace {} (this one is {})", plan->trace_hash, hash));
  return plan;
}

}  // namespace superneurons
