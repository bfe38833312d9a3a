// Random damage to plans: steps lost, doubled, moved, changed; other places, smaller budgets.
#pragma once

#include <algorithm>
#include <utility>

#include "ir/plan.h"
#include "tests/random_trace.h"

namespace superneurons {

class Damage {
 public:
  Damage(const Trace& trace, const Plan& plan, TestRandom& random)
      : trace_(trace), plan_(plan), random_(random) {}

  Plan make() && {
    const std::uint32_t times = random_.chance(70) ? 1 : 2 + random_.below(2);
    for (std::uint32_t i = 0; i < times; ++i) {
      if (random_.chance(75)) damage_order();
      else damage_content();
    }
    return std::move(plan_);
  }

 private:
  std::size_t position() { return random_.below(plan_.steps.size()); }
  auto at(std::size_t index) { return plan_.steps.begin() + static_cast<std::ptrdiff_t>(index); }

  void move(std::size_t from, std::size_t to) {
    const PlanStep step = plan_.steps[from];
    plan_.steps.erase(at(from));
    plan_.steps.insert(at(std::min(to, plan_.steps.size())), step);
  }

  void damage_order() {
    if (plan_.steps.empty()) return;
    const std::size_t one = position(), other = position();
    switch (random_.below(6)) {
      case 0:
        plan_.steps.erase(at(one));
        break;
      case 1: {
        const PlanStep step = plan_.steps[one];
        plan_.steps.insert(at(random_.chance(50) ? one : other), step);
        break;
      }
      case 2:
        std::swap(plan_.steps[one], plan_.steps[other]);
        break;
      case 3:
        std::swap(plan_.steps[one], plan_.steps[std::min(one + 1, plan_.steps.size() - 1)]);
        break;
      case 4:
        move(one, other);
        break;
      default:
        move(one, one > 3 ? one - 1 - random_.below(3) : one + random_.below(4));
    }
  }

  void damage_content() {
    if (plan_.steps.empty()) return;
    PlanStep& step = plan_.steps[position()];
    const bool run = step.kind == StepKind::run;
    switch (random_.below(8)) {
      case 0:
        step.subject = random_.below((run ? trace_.ops.size() : trace_.tensors.size()) + 1);
        break;
      case 1:
        if (!run) step.kind = static_cast<StepKind>(1 + random_.below(4));
        break;
      case 2:
        if (run) step.choice = random_.below(trace_[step.op()].choices.size() + 1);
        break;
      case 3:
        if (step.discard.empty()) discard(step);
        else step.discard.pop_back();
        break;
      case 4:
        if (!plan_.begin.empty())
          plan_.begin[random_.below(plan_.begin.size())].place =
              static_cast<Place>(random_.below(3));
        break;
      case 5:
        plan_.budget.device -= 1_B;
        break;
      case 6:
        plan_.budget.host -= 1_B;
        break;
      default:
        plan_.steps.insert(at(position()), tensor_step(static_cast<StepKind>(1 + random_.below(4)),
                                                       {random_.below(trace_.tensors.size())}));
    }
  }

  /// One of the outputs; sometimes any tensor, or none there is.
  void discard(PlanStep& step) {
    if (step.kind != StepKind::run || step.subject >= trace_.ops.size()) return;
    const auto& writes = trace_[step.op()].writes;
    TensorId tensor{random_.below(trace_.tensors.size() + 1)};
    if (random_.chance(80) && !writes.empty()) tensor = writes[random_.below(writes.size())].tensor;
    step.discard.push_back(tensor);
  }

  const Trace& trace_;
  Plan plan_;
  TestRandom& random_;
};

}  // namespace superneurons
