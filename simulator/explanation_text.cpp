#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "ir/files.h"
#include "simulator/explanation.h"
#include "simulator/report.h"

namespace superneurons {
namespace {

using Json = nlohmann::ordered_json;
using Table = std::vector<std::vector<std::string>>;

std::string subject_of(const Trace& trace, const Plan& plan, std::uint32_t step) {
  if (step >= plan.steps.size()) return "";
  const PlanStep& at = plan.steps[step];
  return at.kind == StepKind::run ? trace[at.op()].name : trace[at.tensor()].name;
}

/// " (and 12 more, 3 MiB)"
std::string rest(std::size_t count, const std::string& amount) {
  return count == 0 ? "" : fmt::format("  and {} more, {} together\n", count, amount);
}

std::string peak_text(const Trace& trace, const Plan& plan, const Explanation& why,
                      std::size_t rows) {
  Bytes operands, homes, waiting;
  for (const Resident& each : why.residents)
    (each.operand ? operands : each.home ? homes : waiting) += each.bytes;
  std::string text =
      fmt::format("most memory is needed at plan step {}, {}: {} live\n", why.peak_step,
                  subject_of(trace, plan, why.peak_step), format_bytes(why.peak));
  text += align({{"  its operands", format_bytes(operands)},
                 {"  its workspace", format_bytes(why.workspace)},
                 {"  at home the whole training step", format_bytes(homes)},
                 {"  waiting for later ops", format_bytes(waiting)}},
                1);
  Table table{{"  tensor", "role", "next used by", "bytes", "since plan step"}};
  std::size_t left_out = 0;
  Bytes left_bytes;
  for (const Resident& each : why.residents) {
    if (each.operand || each.home) continue;
    if (table.size() > rows) {
      ++left_out;
      left_bytes += each.bytes;
      continue;
    }
    table.push_back({"  " + trace[each.tensor].name,
                     std::string(kRoleNames[static_cast<std::size_t>(trace[each.tensor].role)]),
                     each.next_use ? trace[*each.next_use].name : "no op", format_bytes(each.bytes),
                     std::to_string(each.since)});
  }
  if (table.size() > 1) text += "waiting:\n" + align(table, 3);
  return text + rest(left_out, format_bytes(left_bytes));
}

std::string losses_text(const Trace& trace, const Plan& plan, const Outcome& outcome,
                        const Explanation& why, std::size_t rows) {
  std::string text = fmt::format(
      "of {} for a training step, {} are lost; the bound is {}\n", format_time(outcome.step_ns),
      format_time(outcome.step_ns - outcome.compute_ns), format_time(outcome.bound_ns));
  if (why.losses.empty()) return text;
  Table table{{"  before", "cause", "waited for", "lost"}};
  Nanoseconds left;
  for (std::size_t i = 0; i < why.losses.size(); ++i) {
    const Loss& loss = why.losses[i];
    if (i >= rows) {
      left += loss.lost;
      continue;
    }
    table.push_back({"  " + subject_of(trace, plan, loss.plan_step),
                     std::string(kCauseNames[static_cast<std::size_t>(loss.cause)]),
                     loss.waited_for, format_time(loss.lost)});
  }
  const std::size_t more = why.losses.size() > rows ? why.losses.size() - rows : 0;
  return text + align(table, 3) + rest(more, format_time(left));
}

Json reasons_json(const Plan& plan) {
  Json reasons = Json::array();
  for (const Reason& reason : plan.reasons)
    reasons.push_back({{"plan_step", reason.step}, {"text", reason.text}});
  return reasons;
}

Json life_json(const Trace& trace, const Plan& plan, const Evaluation& evaluation,
               TensorId tensor) {
  Json events = Json::array();
  for (const LifeEvent& event : life_of(trace, plan, evaluation, tensor)) {
    Json json = {{"plan_step", event.plan_step}, {"what", event.what}};
    if (event.span) {
      json["start_ns"] = event.span->start.count;
      json["end_ns"] = event.span->end.count;
    }
    json["why"] = event.whys;
    events.push_back(std::move(json));
  }
  return {{"tensor", trace[tensor].name}, {"events", std::move(events)}};
}

Json peak_json(const Trace& trace, const Plan& plan, const Explanation& why) {
  Json residents = Json::array();
  for (const Resident& each : why.residents) {
    residents.push_back({{"tensor", trace[each.tensor].name},
                         {"role", kRoleNames[static_cast<std::size_t>(trace[each.tensor].role)]},
                         {"bytes", each.bytes.count},
                         {"operand", each.operand},
                         {"home", each.home},
                         {"since", each.since}});
    if (each.next_use) residents.back()["next_use"] = trace[*each.next_use].name;
  }
  return {{"plan_step", why.peak_step},
          {"op", subject_of(trace, plan, why.peak_step)},
          {"bytes", why.peak.count},
          {"workspace_bytes", why.workspace.count},
          {"residents", std::move(residents)}};
}

}  // namespace

std::string format_explanation(const Trace& trace, const Plan& plan, const Evaluation& evaluation,
                               const Explanation& why, std::size_t rows) {
  const Outcome& outcome = evaluation.outcome;
  std::string text =
      fmt::format("{} under {}, budget {}: arena {}, {}\n", trace.name, plan.policy,
                  format_bytes(outcome.budget_bytes), format_bytes(outcome.placed_peak_bytes),
                  format_time(outcome.step_ns));
  text += fmt::format("out {}, in {}, {} runs again ({})\n", format_bytes(outcome.offload_bytes),
                      format_bytes(outcome.prefetch_bytes), outcome.recompute_runs,
                      format_time(outcome.recompute_ns));
  if (!plan.reasons.empty() && plan.reasons.front().step == 0)
    text += plan.reasons.front().text + "\n";
  return text + "\n" + peak_text(trace, plan, why, rows) + "\n" +
         losses_text(trace, plan, outcome, why, rows);
}

std::string format_life(const Trace& trace, const Plan& plan, TensorId tensor,
                        const std::vector<LifeEvent>& events) {
  const Tensor& it = trace[tensor];
  std::string text =
      fmt::format("{}: {}, {}\n", it.name, kRoleNames[static_cast<std::size_t>(it.role)],
                  format_bytes(it.bytes));
  for (std::size_t i = 0; i < trace.carry.size(); ++i)
    if (trace.carry[i].start == tensor)
      text += fmt::format("carried: begins the training step at {}\n",
                          kPlaceNames[static_cast<std::size_t>(plan.begin[i].place)]);
  Table table{{"", "plan step", "start", "took"}};
  std::string whys;
  for (const LifeEvent& event : events) {
    table.push_back({event.what, std::to_string(event.plan_step),
                     event.span ? format_time(event.span->start) : "-",
                     event.span ? format_time(event.span->end - event.span->start) : "-"});
    for (const std::string& why : event.whys)
      whys += fmt::format("plan step {}: {}\n", event.plan_step, why);
  }
  return text + align(table, 1) + whys;
}

std::string format_explanation_json(const Trace& trace, const Plan& plan,
                                    const Evaluation& evaluation, const Explanation& why,
                                    const std::map<std::string, std::string>& options,
                                    std::optional<TensorId> tensor) {
  Json losses = Json::array();
  for (const Loss& loss : why.losses)
    losses.push_back({{"plan_step", loss.plan_step},
                      {"op", subject_of(trace, plan, loss.plan_step)},
                      {"lost_ns", loss.lost.count},
                      {"cause", kCauseNames[static_cast<std::size_t>(loss.cause)]},
                      {"waited_for", loss.waited_for}});
  const Json result = Json::parse(format_json({&evaluation.outcome, 1}));
  Json json = {{"format", "superneurons-explanation"},
               {"version", kReportVersion},
               {"trace", trace.name},
               {"trace_hash", plan.trace_hash},
               {"policy", plan.policy},
               {"options", options},
               {"outcome", result["outcomes"][0]},
               {"peak", peak_json(trace, plan, why)},
               {"losses", std::move(losses)},
               {"reasons", reasons_json(plan)}};
  if (tensor) json["life"] = life_json(trace, plan, evaluation, *tensor);
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace superneurons
