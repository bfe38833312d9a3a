// fit NETWORK: the largest batch, or the deepest ResNet, that a policy brings under a budget.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/fit_search.h"
#include "ir/files.h"
#include "replay/replay.h"
#include "simulator/outcome.h"
#include "simulator/rate.h"
#include "simulator/report.h"
#include "tracer/record.h"

namespace superneurons {
namespace {

using Json = nlohmann::ordered_json;
using Replay = std::function<Result<Run>(const Trace&, const Plan&, const ReplayOptions&)>;

struct Options : FitQuestion {
  std::string on;
  int steps = 10;
  std::string json;
};

Error never_fits(const FitSearch& search, const Varied& vary, const Options& options) {
  const Tried* first = search.tried(1);
  Error error = *first->why;
  std::optional<Floor> floor;
  if (error.shortage && error.shortage->smallest_budget > 0_B)
    if (const auto sought = search.floor()) floor = *sought;
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
  Json json{{"value", tried.value}, {"fits", !tried.why}, {"final", tried.final}};
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
  const FitSearch& search;
  const Found& found;
  const Outcome& outcome;
  const Costs& costs;

  std::int64_t images() const { return found.costed.trace.batch; }
  bool exact() const { return search.exact(largest.value); }

  std::string text() const {
    std::string text =
        fmt::format("{}: {} is the largest {} {} fits into {}\n", found.costed.trace.network,
                    vary.name(largest.value), exact() ? "that" : "found that", options.policy,
                    format_bytes(search.request().budget.device));
    std::vector<std::vector<std::string>> rows = {
        {"placed peak", format_bytes(outcome.placed_peak_bytes), options.allocator},
        {"host pool", format_bytes(outcome.host_bytes), ""},
        {"training step", format_time(outcome.step_ns),
         fmt::format("{:.2f} images/s predicted for {}, {}",
                     images_per_second(images(), outcome.step_ns), costs.profile.device,
                     times_text(found.costed, costs))}};
    text += align(rows, 1);
    const Tried* next = search.tried(largest.value + 1);
    if (next == nullptr) return text + "the search ends there\n";
    text += fmt::format("{}: {}\n", vary.name(largest.value + 1), next->why->message);
    if (!next->final)
      return text + fmt::format("which is a guess: with more than {} ops not all is tried\n",
                                kMostOpsInFull);
    std::string further;
    std::int64_t untried = largest.value + 2;  // the least that may fit for all that is known
    for (const auto& [value, fits] : largest.tried) {
      if (value <= largest.value + 1) continue;
      further += fmt::format("{}{}", further.empty() ? "" : ", ", value);
      if (value == untried) ++untried;
    }
    if (!further.empty())
      text += fmt::format("nor do {} fit; other larger ones, such as {}, were not tried in full\n",
                          further, untried);
    return text;
  }

  Json json(const Session& session) const {
    Json json{{"format", "superneurons-fit"}, {"version", kReportVersion}};
    json["options"] = session.options;
    json["network"] = found.costed.trace.network;
    json["vary"] = options.vary;
    json["value"] = largest.value;
    json["exact"] = exact();
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

std::string measured_text(const Run& run, Nanoseconds step, std::int64_t images,
                          const std::string& device) {
  return fmt::format(
      "measured on {}: {:.2f} images/s, peak {}, loss {:.6g} to {:.6g} in {} training "
      "steps\n",
      device, images_per_second(images, step), format_bytes(run.measured.peak),
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
  if (!options.on.empty()) {
    if (const auto on = wants_cuda(options.on); !on) return on.error();
    if (options.network.rate == 0)
      return Error{ErrorCode::bad_usage,
                   "--rate 0 learns nothing, so that --on could not tell whether the loss falls"};
  }
  const auto costs = load_costs(options.costs);
  if (!costs) return costs.error();
  FitQuestion question = options;
  question.with_workspaces = options.on == "cuda";
  FitSearch search(question, *vary, *costs, session);
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
    const std::string on = options.on == "cuda" ? machine_device(true) : "this machine's CPU";
    session.console.print(measured_text(*run, step, answer.images(), on));
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
  auto* command = add_command(
      app, session, "fit", "the largest batch, or the deepest ResNet, that fits a budget",
      "resnet50 --vary batch --budget 12GiB --policy recompute_offload", [options, &session] {
        return with_refusal(fit(*options, session, run_plan), options->json, session);
      });
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
