#include "cli/fit_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "ir/files.h"
#include "memory/placement.h"
#include "policies/exec_policy.h"
#include "simulator/outcome.h"

namespace superneurons {
namespace {

Error not_varied(const std::string& name) {
  return {ErrorCode::bad_usage,
          fmt::format("--vary depth varies n3 of resnet:n1,n2,*,n4, which {} is not", name)};
}

}  // namespace

NetworkOptions Varied::at(NetworkOptions options, std::int64_t value) const {
  if (depth()) options.name = fmt::format("{}{}{}", before, value, after);
  else options.batch = value;
  return options;
}

std::string Varied::name(std::int64_t value) const {
  return depth() ? fmt::format("n3 = {} (depth {})", value, depth_of(value))
                 : fmt::format("batch {}", value);
}

Result<Varied> varied(const FitQuestion& question) {
  if (question.vary == "batch") {
    if (question.network.batch != 0)
      return Error{ErrorCode::bad_usage, "--batch is what --vary batch looks for (give one)"};
    if (question.network.name.find('*') != std::string::npos)
      return Error{ErrorCode::bad_usage,
                   fmt::format("network {}: * goes with --vary depth (with --vary batch give a "
                               "number of blocks)",
                               question.network.name)};
    return Varied{};
  }
  const std::string& name = question.network.name;
  std::vector<std::string> numbers(1);
  if (name.starts_with("resnet:"))
    for (const char c : name.substr(7)) {
      if (c == ',') numbers.emplace_back();
      else numbers.back() += c;
    }
  if (numbers.size() != 4) return not_varied(name);
  Varied result{fmt::format("resnet:{},{},", numbers[0], numbers[1]), "," + numbers[3]};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i == 2 && numbers[i] == "*") continue;
    const std::string& number = numbers[i];
    std::int64_t blocks = 0;
    const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), blocks);
    if (code != std::errc{} || end != number.data() + number.size() || blocks < 1)
      return Error{
          ErrorCode::bad_usage,
          fmt::format("network {}: '{}' is no number of blocks (each at least 1; n3, which "
                      "--vary depth varies, may be written *)",
                      name, number)};
    if (i != 2) result.other_blocks += std::min<std::int64_t>(blocks, 1 << 20);
  }
  result.most = std::max<std::int64_t>(1, 1'000'000 - result.other_blocks);
  return result;
}

Status FitSearch::set_budgets() {
  request_ = {.policy = question_.policy,
              .budget = {costs_.profile.device_memory, costs_.profile.host_memory},
              .allocator = question_.allocator,
              .stop = &session_.stop};
  for (auto [option, text, bytes] :
       {std::tuple{"--budget", &question_.budget, &request_.budget.device},
        std::tuple{"--host-budget", &question_.host_budget, &request_.budget.host}}) {
    if (text->empty()) continue;
    const auto parsed = parse_bytes(*text);
    if (!parsed)
      return Error{ErrorCode::bad_usage,
                   fmt::format("{}: {} (of networks of many sizes only a size such as 12GiB makes "
                               "sense)",
                               option, parsed.error().message)};
    *bytes = *parsed;
  }
  return Ok{};
}

Result<Largest> FitSearch::run() {
  const auto brief =
      find_largest(vary_.most, [this](std::int64_t value) { return fits(value, false); });
  if (!brief) return brief;
  return push_on(vary_.most, brief->value,
                 [this](std::int64_t value) { return fits(value, true); });
}

const Tried* FitSearch::tried(std::int64_t value) const {
  for (const Tried& each : tried_)
    if (each.value == value) return &each;
  return nullptr;
}

bool FitSearch::exact(std::int64_t value) const {
  if (value == vary_.most) return true;
  const Tried* next = tried(value + 1);
  return next != nullptr && !vary_.depth() && costs_.recorded.empty() &&
         next->working_set > request_.budget.device;
}

Result<CostedTrace> FitSearch::network_of(std::int64_t value) const {
  auto costed = costed_network(vary_.at(question_.network, value), costs_);
  if (costed && question_.with_workspaces)
    if (Status status = take_machine_kernels(costed->trace); !status) return status.error();
  return costed;
}

Result<Floor> FitSearch::floor() const {
  const auto costed = network_of(1);
  if (!costed) return costed.error();
  return smallest_budget(costed->trace, costs_.profile, request_,
                         predictor(costed->trace, costs_.profile, &session_.stop));
}

Result<bool> FitSearch::fits(std::int64_t value, bool thorough) {
  const auto known = std::find_if(tried_.begin(), tried_.end(),
                                  [&](const Tried& each) { return each.value == value; });
  if (known != tried_.end() && known->final) return !known->why;
  const bool command = is_exec(question_.policy);  // is never asked twice about one network
  auto costed = network_of(value);
  if (!costed) return costed.error();
  thorough = thorough && costed->trace.ops.size() <= kMostOpsInFull;
  if (known != tried_.end() && !thorough) return !known->why;
  session_.console.sign_of_life(
      fmt::format("{}: planning{}", vary_.name(value), thorough ? " again, with all means" : ""));
  PlanRequest request = request_;
  request.seek_floor = thorough;
  auto plan = make_plan(costed->trace, costs_.profile, request,
                        predictor(costed->trace, costs_.profile, &session_.stop));
  if (!plan && plan.error().code != ErrorCode::does_not_fit) return plan.error();
  Tried tried{value, {}, {}, largest_working_set(costed->trace), plan || thorough || command};
  if (plan) {
    const auto peak = smallest_arena(costed->trace, *plan);
    if (!peak) return peak.error();
    tried.placed_peak = *peak;
    if (!found_ || value > found_->value)
      found_ = Found{value, *std::move(costed), *std::move(plan)};
  } else {
    tried.why = plan.error();
  }
  session_.console.sign_of_life(fmt::format(
      "{}: {}", vary_.name(value),
      tried.why ? "does not fit" : "fits, placed peak " + format_bytes(tried.placed_peak)));
  const bool good = !tried.why;
  if (known != tried_.end()) *known = std::move(tried);
  else tried_.push_back(std::move(tried));
  return good;
}

}  // namespace superneurons
