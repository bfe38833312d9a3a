#include "replay/reference.h"

#include <algorithm>
#include <optional>

#include "ir/files.h"
#include "memory/allocator.h"
#include "memory/placement.h"

namespace superneurons {
namespace {

constexpr std::size_t kNever = static_cast<std::size_t>(-1);

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void take_choices(const Trace& trace, const Plan& from, Plan& to) {
  std::vector<std::optional<std::uint32_t>> choices(trace.ops.size());
  for (const PlanStep& step : from.steps)
    if (step.kind == StepKind::run && step.subject < choices.size())
      choices[step.subject] = step.choice;
  for (PlanStep& step : to.steps)
    if (step.kind == StepKind::run) step.choice = choices[step.subject].value_or(step.choice);
}

/// Other choices may omit outputs, which then are not there to be freed.
void drop_needless_frees(const Trace& trace, Plan& plan) {
  std::vector<bool> there(trace.tensors.size(), false);
  for (const Carry& carry : trace.carry) there[carry.start.index] = true;
  for (const PlanStep& step : plan.steps) {
    if (step.kind != StepKind::run) continue;
    const Op& op = trace[step.op()];
    if (step.choice >= op.choices.size()) continue;
    for (const Access& write : op.writes)
      if (!contains(op.choices[step.choice].omits, write.tensor)) there[write.tensor.index] = true;
  }
  std::erase_if(plan.steps, [&](const PlanStep& step) {
    return step.kind == StepKind::free && !there[step.subject];
  });
}

/// Tensors that a run touches, each once; what its choice omits and nobody reads is not touched.
std::vector<TensorId> operands(const Trace& trace, const PlanStep& step) {
  const Op& op = trace[step.op()];
  std::vector<TensorId> result;
  const auto add = [&](TensorId tensor) {
    if (!contains(result, tensor)) result.push_back(tensor);
  };
  for (const Access& read : op.reads) add(read.tensor);
  for (const Access& write : op.writes)
    if (step.choice >= op.choices.size() || !contains(op.choices[step.choice].omits, write.tensor))
      add(write.tensor);
  return result;
}

/// Arena and pool of the plan's own size.
void set_budget(const Trace& trace, Plan& plan) {
  plan.budget = {kEndless, kEndless};
  const Result<Placement> placement = place(trace, plan, kEndless);
  plan.budget = placement ? Budget{placement->placed_peak, placement->host_peak}
                          : Budget{};  // then run_plan says what is wrong
}

/// Frees, and moves to the host, what does not live at a home on the device.
class Thinner {
 public:
  Thinner(const Trace& trace, const Plan& kept) : trace_(trace), kept_(kept) {
    at_home_.assign(trace.tensors.size(), false);
    for (const Carry& carry : trace.carry)
      at_home_[carry.start.index] = at_home_[carry.end.index] = true;
    std::vector<std::size_t> next(trace.tensors.size(), kNever);
    next_use_.resize(kept.steps.size());
    for (std::size_t i = kept.steps.size(); i-- > 0;) {
      if (kept.steps[i].kind != StepKind::run) continue;
      for (const TensorId tensor : operands(trace, kept.steps[i])) {
        next_use_[i].push_back(next[tensor.index]);
        next[tensor.index] = i;
      }
    }
  }

  /// With `offload`, what the next run does not touch goes to the host until it is needed.
  Plan thin(bool offload) const {
    Plan plan = kept_;
    plan.steps.clear();
    std::vector<bool> away(trace_.tensors.size(), false);
    for (std::size_t i = 0; i < kept_.steps.size(); ++i) {
      const PlanStep& step = kept_.steps[i];
      if (step.kind != StepKind::run) {
        if (at_home_[step.subject]) plan.steps.push_back(step);
        continue;
      }
      const std::vector<TensorId> tensors = operands(trace_, step);
      for (const TensorId tensor : tensors)
        if (away[tensor.index]) {
          away[tensor.index] = false;
          plan.steps.push_back(tensor_step(StepKind::prefetch, tensor));
          plan.steps.push_back(tensor_step(StepKind::free_host, tensor));
        }
      plan.steps.push_back(step);
      for (std::size_t k = 0; k < tensors.size(); ++k) {
        const TensorId tensor = tensors[k];
        if (at_home_[tensor.index]) continue;
        const std::size_t next = next_use_[i][k];
        if (next == kNever) {
          plan.steps.push_back(tensor_step(StepKind::free, tensor));
        } else if (offload && next > next_run(i)) {
          plan.steps.push_back(tensor_step(StepKind::offload, tensor));
          plan.steps.push_back(tensor_step(StepKind::free, tensor));
          away[tensor.index] = true;
        }
      }
    }
    return plan;
  }

 private:
  std::size_t next_run(std::size_t step) const {
    do ++step;
    while (step < kept_.steps.size() && kept_.steps[step].kind != StepKind::run);
    return step;
  }

  const Trace& trace_;
  const Plan& kept_;
  std::vector<bool> at_home_;
  std::vector<std::vector<std::size_t>> next_use_;  // of each operand of each run, in plan steps
};

Plan everything_kept(const Trace& trace, const Plan& plan) {
  Plan reference = keep_all_plan(trace);
  take_choices(trace, plan, reference);
  drop_needless_frees(trace, reference);
  reference.policy = "reference";
  return reference;
}

}  // namespace

Plan reference_plan(const Trace& trace, const Plan& plan) {
  Plan reference = everything_kept(trace, plan);
  set_budget(trace, reference);
  return reference;
}

std::vector<Plan> reference_ladder(const Trace& trace, const Plan& plan) {
  const Plan kept = everything_kept(trace, plan);
  const Thinner thinner(trace, kept);
  std::vector<Plan> ladder{kept, thinner.thin(false), thinner.thin(true)};
  ladder[1].policy = "reference (freed after last use)";
  ladder[2].policy = "reference (freed after last use, waiting on the host)";
  for (Plan& rung : ladder) set_budget(trace, rung);
  return ladder;
}

Result<Reference> run_reference(const Trace& trace, const Plan& plan, const ReplayOptions& options,
                                Bytes most) {
  std::optional<Error> refused;
  Bytes least{};
  for (Plan& rung : reference_ladder(trace, plan)) {
    least = rung.budget.device;
    if (least > most) continue;
    Result<Run> run = run_plan(trace, rung, options);
    if (run) return Reference{std::move(rung), *std::move(run)};
    if (run.error().code != ErrorCode::does_not_fit) return run.error();
    refused = run.error();
  }
  if (refused) return *refused;
  return Error{ErrorCode::does_not_fit, "the least that a reference needs, " + format_bytes(least) +
                                            ", is more than the " + format_bytes(most) +
                                            " there are"};
}

}  // namespace superneurons
