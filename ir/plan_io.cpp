#include "ir/plan_io.h"

#include "ir/files.h"
#include "ir/record.h"

namespace superneurons {

template <class Archive, class BudgetType>
requires std::is_same_v<std::remove_const_t<BudgetType>, Budget>
void fields(Archive& archive, BudgetType& budget) {
  archive.required("device", budget.device);
  archive.optional("host", budget.host, Bytes{});
}

namespace {

constexpr std::string_view kFormat = "superneurons-plan";

template <class Archive, class PlanType>
void header_fields(Archive& archive, PlanType& plan) {
  archive.required("trace", plan.trace_hash);
  archive.optional("policy", plan.policy, "");
  archive.required("allocator", plan.allocator);
  archive.required("budget", plan.budget);
}

template <class Archive, class ReasonType>
void reason_fields(Archive& archive, ReasonType& reason) {
  archive.required("step", reason.step);
  archive.required("text", reason.text);
}

/// A step is named by its verb: {"run":3,"choice":1}, {"free":7}.
template <class Archive, class StepType>
void step_fields(Archive& archive, StepType& step) {
  archive.required(kStepKindNames[static_cast<std::size_t>(step.kind)], step.subject);
  if (step.kind != StepKind::run) return;
  archive.optional("choice", step.choice, 0U);
  archive.optional("discard", step.discard);
}

struct PlanReader {
  Plan plan;

  static Status status(const FieldReader& reader) {
    if (reader.problem().empty()) return Ok{};
    return Error{ErrorCode::bad_input, reader.problem()};
  }

  Status header(JsonValue record) {
    FieldReader reader(record, "the header");
    header_fields(reader, plan);
    std::vector<Place> places;
    reader.optional("begin", places);
    for (const Place place : places) plan.begin.push_back({place});
    if (plan.budget.device.count < 0 || plan.budget.host.count < 0)
      reader.fail("the budget is negative (would be 0 or more)");
    return status(reader);
  }

  Status record(JsonValue record, std::string_view kind) {
    if (kind.empty()) return step(record);
    if (kind == "reason") {
      FieldReader reader(record, "reason", static_cast<std::int64_t>(plan.reasons.size()));
      reason_fields(reader, plan.reasons.emplace_back());
      return status(reader);
    }
    if (kind != "end") return Ok{};  // of a newer version
    Status same = compare_count(record, "steps", static_cast<std::int64_t>(plan.steps.size()));
    if (!same) return same;
    return compare_count(record, "reasons", static_cast<std::int64_t>(plan.reasons.size()));
  }

  Status step(JsonValue record) {
    FieldReader reader(record, "step", static_cast<std::int64_t>(plan.steps.size()));
    PlanStep step;
    int verbs = 0;
    for (std::size_t kind = 0; kind < kStepKindNames.size(); ++kind) {
      if (!record.find(kStepKindNames[kind])) continue;
      step.kind = static_cast<StepKind>(kind);
      ++verbs;
    }
    if (verbs != 1)
      return Error{ErrorCode::bad_input,
                   "step " + std::to_string(plan.steps.size()) +
                       (verbs == 0 ? " does nothing known" : " does several things") +
                       " (would have one of \"run\", \"free\", \"offload\", \"prefetch\", "
                       "\"free_host\")"};
    step_fields(reader, step);
    plan.steps.push_back(std::move(step));
    return status(reader);
  }

  std::string progress() const {
    return plan.steps.empty() ? "the header" : "step " + std::to_string(plan.steps.size() - 1);
  }
};

/// `feed(line)` gives all lines to `line` and returns the first error.
template <class Feed>
Result<Plan> read(const std::string& name, const Feed& feed) {
  PlanReader reader;
  RecordLines lines(reader, kFormat, name);
  Status status =
      feed([&](std::string_view text, std::int64_t number) { return lines.line(text, number); });
  if (status) status = lines.finish();
  if (!status) return std::move(status.error());
  return std::move(reader.plan);
}

}  // namespace

Result<Plan> read_plan(const std::string& path) {
  return read(path, [&](const auto& line) { return for_each_line(path, line); });
}

Result<Plan> parse_plan(std::string_view text, const std::string& name) {
  return read(name, [&](const auto& line) { return for_each_line_of(text, name, line); });
}

std::string format_plan(const Plan& plan) {
  std::string out;
  FieldWriter header(out);
  header.required("r", std::string_view("header"));
  header.required("format", kFormat);
  header.required("version", kFormatVersion);
  header_fields(header, plan);
  std::vector<Place> places;
  for (const Begin& begin : plan.begin) places.push_back(begin.place);
  header.optional("begin", places);
  header.close();
  out += '\n';
  for (const PlanStep& step : plan.steps) {
    FieldWriter writer(out);
    step_fields(writer, step);
    writer.close();
    out += '\n';
  }
  for (const Reason& reason : plan.reasons) {
    FieldWriter writer(out);
    writer.required("r", std::string_view("reason"));
    reason_fields(writer, reason);
    writer.close();
    out += '\n';
  }
  FieldWriter end(out);
  end.required("r", std::string_view("end"));
  end.required("steps", plan.steps.size());
  end.required("reasons", plan.reasons.size());
  end.close();
  out += '\n';
  return out;
}

Status write_plan(const Plan& plan, const std::string& path) {
  return write_file(path, format_plan(plan));
}

}  // namespace superneurons
