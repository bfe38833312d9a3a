#include <algorithm>

#include "ir/check.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

/// Edits a plan at random; the caller keeps what check() accepts.
class Editor {
 public:
  Editor(const Trace& trace, Plan plan, TestRandom& random)
      : trace_(trace), plan_(std::move(plan)), random_(random) {}

  Plan edit() && {
    switch (random_.below(7)) {
      case 0:
      case 1:
        free_earlier();
        break;
      case 2:
        round_trip();
        break;
      case 3:
        make_again();
        break;
      case 4:
        run_again(position());
        break;
      case 5:
        other_choice();
        break;
      default:
        begin_on_host();
    }
    return std::move(plan_);
  }

 private:
  std::size_t position() { return random_.below(plan_.steps.size() + 1); }
  TensorId any_tensor() { return {random_.below(trace_.tensors.size())}; }

  void insert(std::size_t at, PlanStep step) {
    at = std::min(at, plan_.steps.size());
    plan_.steps.insert(plan_.steps.begin() + static_cast<std::ptrdiff_t>(at), std::move(step));
  }

  /// Plan step after the last one before `end` that touches the tensor.
  std::size_t after_last_touch(TensorId tensor, std::size_t end) const {
    while (end > 0 && !touches(plan_.steps[end - 1], tensor)) --end;
    return end;
  }

  bool touches(const PlanStep& step, TensorId tensor) const {
    if (step.kind != StepKind::run) return step.tensor() == tensor;
    const Op& op = trace_[step.op()];
    const auto same = [&](const Access& access) { return access.tensor == tensor; };
    return std::any_of(op.reads.begin(), op.reads.end(), same) ||
           std::any_of(op.writes.begin(), op.writes.end(), same);
  }

  void free_earlier() {
    const std::size_t at = random_.below(plan_.steps.size());
    const PlanStep step = plan_.steps[at];
    if (step.kind == StepKind::run) return;
    plan_.steps.erase(plan_.steps.begin() + static_cast<std::ptrdiff_t>(at));
    insert(random_.chance(70) ? after_last_touch(step.tensor(), at) : random_.below(at + 1), step);
  }

  /// offload … free … prefetch … free_host, with anything in between.
  void round_trip() {
    const TensorId tensor = any_tensor();
    std::size_t at[4] = {position(), position(), position(), position()};
    std::sort(at, at + 4);
    if (random_.chance(50)) at[1] = at[0];
    if (random_.chance(50)) at[3] = at[2];
    insert(at[3], tensor_step(StepKind::free_host, tensor));
    insert(at[2], tensor_step(StepKind::prefetch, tensor));
    insert(at[1], tensor_step(StepKind::free, tensor));
    insert(at[0], tensor_step(StepKind::offload, tensor));
  }

  /// Frees a tensor and runs the ops that write it again: all of them, or one.
  void make_again() {
    const TensorId tensor = any_tensor();
    std::size_t from = position(), to = position();
    if (from > to) std::swap(from, to);
    std::vector<PlanStep> again;
    for (std::size_t i = 0; i < from; ++i) {
      const PlanStep& step = plan_.steps[i];
      if (step.kind != StepKind::run || !touches(step, tensor)) continue;
      for (const Access& write : trace_[step.op()].writes)
        if (write.tensor == tensor) again.push_back(rerun(step, tensor));
    }
    if (again.size() > 1 && random_.chance(30)) again = {again.back()};
    for (std::size_t i = again.size(); i-- > 0;) insert(to, again[i]);
    insert(from, tensor_step(StepKind::free, tensor));
  }

  PlanStep rerun(const PlanStep& first, TensorId wanted) {
    PlanStep step = run_step(first.op(), first.choice);
    for (const Access& write : trace_[first.op()].writes)
      if (write.tensor != wanted && random_.chance(60)) step.discard.push_back(write.tensor);
    return step;
  }

  void run_again(std::size_t at) {
    std::vector<PlanStep> runs;
    for (std::size_t i = 0; i < std::min(at, plan_.steps.size()); ++i)
      if (plan_.steps[i].kind == StepKind::run) runs.push_back(plan_.steps[i]);
    if (runs.empty()) return;
    const PlanStep first = runs[random_.below(runs.size())];
    const TensorId wanted = trace_[first.op()].writes[0].tensor;
    insert(at, rerun(first, wanted));
    if (random_.chance(50)) insert(at + 1, tensor_step(StepKind::free, wanted));
  }

  void other_choice() {
    const std::uint32_t op = random_.below(trace_.ops.size());
    const std::uint32_t choice = random_.below(trace_.ops[op].choices.size());
    for (PlanStep& step : plan_.steps)
      if (step.kind == StepKind::run && step.subject == op) step.choice = choice;
  }

  void begin_on_host() {
    if (trace_.carry.empty()) return;
    const std::uint32_t carry = random_.below(trace_.carry.size());
    const auto [end, start] = trace_.carry[carry];
    if (plan_.begin[carry].place != Place::device) return;
    plan_.begin[carry].place = Place::host;
    const bool dropped = random_.chance(50) || end != start;
    insert(plan_.steps.size(), tensor_step(StepKind::offload, end));
    insert(plan_.steps.size(), tensor_step(StepKind::free, end));
    std::size_t first = 0;
    while (first < plan_.steps.size() && !touches(plan_.steps[first], start)) ++first;
    if (dropped) insert(first, tensor_step(StepKind::free_host, start));
    insert(first, tensor_step(StepKind::prefetch, start));
  }

  const Trace& trace_;
  Plan plan_;
  TestRandom& random_;
};

/// The smallest amount that check() accepts, where any amount from it on is accepted.
void shrink(const Trace& trace, Plan& plan, Bytes& amount) {
  std::int64_t refused = -1, accepted = amount.count;
  while (accepted - refused > 1) {
    amount.count = refused + (accepted - refused) / 2;
    (check(trace, plan) ? refused : accepted) = amount.count;
  }
  amount.count = accepted;
}

}  // namespace

Plan random_lawful_plan(const Trace& trace, std::uint64_t seed) {
  TestRandom random{seed ^ 0x706c616eULL};
  Plan plan = keep_all_plan(trace);
  plan.policy = "random";
  Bytes all{};
  for (const Tensor& tensor : trace.tensors) all += tensor.bytes;
  for (const Op& op : trace.ops)
    for (const Choice& choice : op.choices) all += choice.workspace;
  plan.budget = {all * 2, all * 2};
  const std::uint32_t tries = 20 + random.below(100);
  for (std::uint32_t i = 0; i < tries; ++i) {
    Plan edited = Editor(trace, plan, random).edit();
    if (!check(trace, edited)) plan = std::move(edited);
  }
  shrink(trace, plan, plan.budget.device);
  shrink(trace, plan, plan.budget.host);
  return plan;
}

}  // namespace superneurons
