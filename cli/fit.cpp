// fit NETWORK: the largest batch, or the deepest ResNet, that a policy brings under a budget.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/largest.h"
#include "cli/network_options.h"
#include "cli/session.h"
#include "ir/files.h"
#include "memory/placement.h"
#include "replay/replay.h"
#include "simulator/outcome.h"
#include "simulator/rate.h"
#include "simulator/report.h"
#include "tracer/record.h"

namespace superneurons {
namespace {

using Json = nlohmann::ordered_json;
using Replay = std::function<Result<Run>(const Trace&, const Plan&, const ReplayOptions&)>;

constexpr std::int64_t kMostImages = 1 << 20;

struct Options {
  NetworkOptions network;
  CostOptions costs;
  std::string vary;
  std::string budget;
  std::string host_budget;
  std::string policy;
  std::string allocator = "first_fit";
  std::string on;
  int steps = 10;
  std::string json;
};

/// What is varied: the batch, or n3 of "resnet:n1,n2,n3,n4".
struct Varied {
  std::string before, after;      // of the network's name, around n3; "" when the batch varies
  std::int64_t other_blocks = 0;  // n1 + n2 + n4
  std::int64_t most = kMostImages;

  bool depth() const { return !before.empty(); }
  NetworkOptions at(NetworkOptions options, std::int64_t value) const {
    if (depth()) options.name = fmt::format("{}{}{}", before, value, after);
    else options.batch = value;
    return options;
  }
  /// Layers with weights: 3 per bottleneck, the first convolution and the last linear layer.
  std::int64_t depth_of(std::int64_t value) const { return 3 * (other_blocks + value) + 2; }
  std::string name(std::int64_t value) const {
    return depth() ? fmt::format("n3 = {} (depth {})", value, depth_of(value))
                   : fmt::format("batch {}", value);
  }
};

Result<Varied> varied(const Options& options) {
  if (options.vary == "batch") {
    if (options.network.batch != 0)
      return Error{ErrorCode::bad_usage, "--batch is what --vary batch looks for (give one)"};
    return Varied{};
  }
  const std::string& name = options.network.name;
  std::vector<std::string> numbers(1);
  if (name.starts_with("resnet:"))
    for (const char c : name.substr(7)) {
      if (c == ',') numbers.emplace_back();
      else numbers.back() += c;
    }
  if (numbers.size() != 4)
    return Error{ErrorCode::bad_usage,
                 fmt::format("--vary depth varies n3 of resnet:n1,n2,*,n4, which {} is not", name)};
  Varied result{fmt::format("resnet:{},{},", numbers[0], numbers[1]), "," + numbers[3]};
  for (const std::string& number : {numbers[0], numbers[1], numbers[3]}) {
    std::int64_t blocks = 0;
    const auto read = std::from_chars(number.data(), number.data() + number.size(), blocks);
    if (read.ec == std::errc{}) result.other_blocks += std::clamp<std::int64_t>(blocks, 0, 1 << 20);
  }
  result.most = std::max<std::int64_t>(1, 1'000'000 - result.other_blocks);
  return result;
}

/// A network of one value, with its plan if there is one.
struct Tried {
  std::int64_t value = 0;
  Bytes placed_peak{};       // where it fits
  std::optional<Error> why;  // where it does not
};

struct Found {
  std::int64_t value = 0;
  CostedTrace costed;
  Plan plan;
};

class Search {
 public:
  Search(const Options& options, const Varied& vary, const Costs& costs, const Session& session)
      : options_(options), vary_(vary), costs_(costs), session_(session) {}

  Status set_budgets() {
    request_ = {.policy = options_.policy,
                .budget = {costs_.profile.device_memory, costs_.profile.host_memory},
                .allocator = options_.allocator,
                .stop = &session_.stop,
                .seek_floor = false};
    for (auto [text, bytes] : {std::pair{&options_.budget, &request_.budget.device},
                               std::pair{&options_.host_budget, &request_.budget.host}}) {
      if (text->empty()) continue;
      const auto parsed = parse_bytes(*text);
      if (!parsed) return parsed.error();
      *bytes = *parsed;
    }
    return Ok{};
  }

  Result<Largest> run() {
    return find_largest(vary_.most, [this](std::int64_t value) { return fits(value); });
  }

  const PlanRequest& request() const { return request_; }
  const std::vector<Tried>& tried() const { return tried_; }
  std::optional<Found>& found() { return found_; }
  const Tried* tried(std::int64_t value) const {
    for (const Tried& each : tried_)
      if (each.value == value) return &each;
    return nullptr;
  }

  /// Of the smallest network: what no smaller budget of this policy could be.
  Result<Floor> floor() const {
    const auto costed = network_of(1);
    if (!costed) return costed.error();
    return smallest_budget(costed->trace, costs_.profile, request_,
                           predictor(costed->trace, costs_.profile, &session_.stop));
  }

 private:
  /// What is to be trained on a GPU takes its workspaces into account.
  Result<CostedTrace> network_of(std::int64_t value) const {
    auto costed = costed_network(vary_.at(options_.network, value), costs_);
    if (costed && options_.on == "cuda")
      if (Status status = take_machine_kernels(costed->trace); !status) return status.error();
    return costed;
  }

  Result<bool> fits(std::int64_t value) {
    session_.console.progress(fmt::format("{}: planning", vary_.name(value)));
    auto costed = network_of(value);
    if (!costed) return costed.error();
    auto plan = make_plan(costed->trace, costs_.profile, request_,
                          predictor(costed->trace, costs_.profile, &session_.stop));
    if (!plan && plan.error().code != ErrorCode::does_not_fit) return plan.error();
    Tried tried{value, {}, {}};
    if (plan) {
      const auto peak = smallest_arena(costed->trace, *plan);
      if (!peak) return peak.error();
      tried.placed_peak = *peak;
      if (!found_ || value > found_->value)
        found_ = Found{value, *std::move(costed), *std::move(plan)};
    } else {
      tried.why = plan.error();
    }
    session_.console.progress(fmt::format(
        "{}: {}", vary_.name(value),
        tried.why ? "does not fit" : "fits, placed peak " + format_bytes(tried.placed_peak)));
    tried_.push_back(tried);
    return !tried.why;
  }

  const Options& options_;
  const Varied& vary_;
  const Costs& costs_;
  const Session& session_;
  PlanRequest request_;
  std::vector<Tried> tried_;  // in the order of the search
  std::optional<Found> found_;
};

Error never_fits(const Search& search, const Varied& vary, const Options& options) {
  const auto floor = search.floor();
  const Tried* first = search.tried(1);
  Error error = first != nullptr && first->why ? *first->why : Error{};
  error.code = ErrorCode::does_not_fit;
  error.message = fmt::format("{} never fits {} at {}: ", options.policy, options.network.name,
                              format_bytes(search.request().budget.device));
  if (floor)
    error.message += fmt::format("even {} needs {} ({} B), set by op {}", vary.name(1),
                                 format_bytes(floor->budget), floor->budget.count, floor->op);
  else error.message += first->why->message;
  return error;
}

/// A run of the found plan on this machine.
Result<Run> confirm(const Found& found, const Outcome& outcome, const Options& options,
                    const Session& session, const Replay& replay) {
  const auto on_cuda = wants_cuda(options.on);
  if (!on_cuda) return on_cuda.error();
  Plan plan = found.plan;
  plan.budget.device = outcome.placed_peak_bytes;
  session.console.progress(fmt::format("{} training steps", options.steps));
  return replay(found.costed.trace, plan,
                {.on_cuda = *on_cuda,
                 .training_steps = options.steps,
                 .warmup_steps = std::min(3, options.steps - 1),
                 .stop = &session.stop});
}

/// Whether training got anywhere: every loss finite, the last below the first.
Status judge(const std::vector<float>& losses) {
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (!std::isfinite(losses[i]))
      return Error{ErrorCode::not_equal,
                   fmt::format("the loss of training step {} is {} (a smaller --rate may help)",
                               i + 1, losses[i])};
  if (losses.size() > 1 && losses.back() >= losses.front())
    return Error{ErrorCode::not_equal,
                 fmt::format("the loss went from {:.6g} to {:.6g} in {} training steps (another "
                             "--rate or more --steps may help)",
                             losses.front(), losses.back(), losses.size())};
  return Ok{};
}

Json json_of(const Tried& tried) {
  Json json{{"value", tried.value}, {"fits", !tried.why}};
  if (!tried.why) json["placed_peak_bytes"] = tried.placed_peak.count;
  if (!tried.why || !tried.why->shortage) return json;
  json["op"] = tried.why->shortage->op;
  json["short_by_bytes"] = tried.why->shortage->short_by.count;
  json["reason"] = tried.why->message;
  return json;
}

/// The answer for people and as JSON.
struct Answer {
  const Options& options;
  const Varied& vary;
  const Largest& largest;
  const Search& search;
  const Found& found;
  const Outcome& outcome;
  const Costs& costs;

  std::int64_t images() const { return found.costed.trace.batch; }

  std::string text() const {
    std::string text = fmt::format("{}: {} is the largest that {} fits into {}\n",
                                   found.costed.trace.network, vary.name(largest.value),
                                   options.policy, format_bytes(search.request().budget.device));
    std::vector<std::vector<std::string>> rows = {
        {"placed peak", format_bytes(outcome.placed_peak_bytes), options.allocator},
        {"host pool", format_bytes(outcome.host_bytes), ""},
        {"training step", format_time(outcome.step_ns),
         fmt::format("{:.2f} images/s predicted, {}", images_per_second(images(), outcome.step_ns),
                     times_text(found.costed, costs))}};
    text += align(rows, 1);
    const Tried* next = search.tried(largest.value + 1);
    if (next == nullptr) return text + "the search ends there\n";
    text += fmt::format("{}: {}\n", vary.name(largest.value + 1), next->why->message);
    std::string further;
    for (const auto& [value, fits] : largest.tried)
      if (value > largest.value + 1)
        further += fmt::format("{}{}", further.empty() ? "" : ", ", value);
    if (!further.empty()) text += fmt::format("nor do {} fit, which were tried too\n", further);
    return text;
  }

  Json json(const Session& session) const {
    Json json{{"format", "superneurons-fit"}, {"version", kReportVersion}};
    json["options"] = session.options;
    json["network"] = found.costed.trace.network;
    json["vary"] = options.vary;
    json["value"] = largest.value;
    if (vary.depth()) json["depth"] = vary.depth_of(largest.value);
    json["batch"] = images();
    json["policy"] = options.policy;
    json["trace"] = found.costed.trace.name;
    json["trace_hash"] = found.plan.trace_hash;
    json["allocator"] = options.allocator;
    json["budget_bytes"] = search.request().budget.device.count;
    json["host_budget_bytes"] = search.request().budget.host.count;
    json["live_peak_bytes"] = outcome.live_peak_bytes.count;
    json["placed_peak_bytes"] = outcome.placed_peak_bytes.count;
    json["host_bytes"] = outcome.host_bytes.count;
    json["step_ns"] = outcome.step_ns.count;
    json["images_per_s"] = images_per_second(images(), outcome.step_ns);
    json["times"] = times_text(found.costed, costs);
    json["tried"] = Json::array();
    for (const Tried& each : search.tried()) json["tried"].push_back(json_of(each));
    return json;
  }
};

std::string measured_text(const Run& run, Nanoseconds step, std::int64_t images) {
  return fmt::format(
      "measured: {:.2f} images/s, peak {}, loss {:.6g} to {:.6g} in {} training "
      "steps\n",
      images_per_second(images, step), format_bytes(run.measured.peak),
      run.losses.empty() ? 0.0F : run.losses.front(), run.losses.empty() ? 0.0F : run.losses.back(),
      run.losses.size());
}

Json measured_json(const Run& run, Nanoseconds step, std::int64_t images) {
  return {{"step_ns", step.count},
          {"images_per_s", images_per_second(images, step)},
          {"peak_bytes", run.measured.peak.count},
          {"host_bytes", run.measured.host_peak.count},
          {"losses", run.losses}};
}

Status fit(const Options& options, const Session& session, const Replay& replay) {
  const auto vary = varied(options);
  if (!vary) return vary.error();
  if (!options.on.empty())
    if (const auto on = wants_cuda(options.on); !on) return on.error();
  const auto costs = load_costs(options.costs);
  if (!costs) return costs.error();
  Search search(options, *vary, *costs, session);
  if (Status set = search.set_budgets(); !set) return set;
  const auto largest = search.run();
  if (!largest) return largest.error();
  if (largest->value == 0) return never_fits(search, *vary, options);
  const Found& found = *search.found();
  const auto outcome = evaluate(found.costed.trace, found.plan, costs->profile);
  if (!outcome) return outcome.error();
  const Answer answer{options, *vary, *largest, search, found, *outcome, *costs};
  session.console.print(answer.text());
  Json json = answer.json(session);
  Status good = Ok{};
  if (!options.on.empty()) {
    const auto run = confirm(found, *outcome, options, session, replay);
    if (!run) return run.error();
    const Nanoseconds step = median_step(run->measured.steps, std::min(3, options.steps - 1));
    session.console.print(measured_text(*run, step, answer.images()));
    json["measured"] = measured_json(*run, step, answer.images());
    good = judge(run->losses);
  }
  const std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
  if (Status status = write_json(options.json, text); !status) return status;
  return good;
}

}  // namespace

void add_fit_command(cli::App& app, Session& session) {
  auto options = std::make_shared<Options>();
  auto* command = add_command(app, session, "fit",
                              "the largest batch, or the deepest ResNet, that fits a budget",
                              "resnet50 --vary batch --budget 12GiB --policy recompute_offload",
                              [options, &session] { return fit(*options, session, run_plan); });
  add_network_option(*command, options->network)->required();
  command->add_option("--vary", options->vary, "batch, or depth: n3 of resnet:n1,n2,*,n4")
      ->one_of({"batch", "depth"})
      ->required();
  command->add_option("--policy", options->policy, "see `superneurons policies`")->required();
  command->add_option("--budget", options->budget, "device memory (default: the profile's)");
  command->add_option("--host-budget", options->host_budget,
                      "pinned host memory (default: the profile's)");
  command
      ->add_option("--allocator", options->allocator,
                   "how ranges are placed in the arena, see `superneurons policies`")
      ->capture_default_str();
  add_lowering_options(*command, options->network);
  add_cost_options(*command, options->costs);
  command->add_option(
      "--on", options->on,
      "host or cuda: also train what was found there, for real; the loss must fall");
  command->add_option("--steps", options->steps, "training steps of --on")
      ->within(2, 1000)
      ->capture_default_str();
  add_json_option(*command, options->json);
}

}  // namespace superneurons
