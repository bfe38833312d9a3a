// What the traced program did itself: each storage is given back where the program gave it back.
// Shows what a policy gains over the program as it is.
#include <fmt/core.h>

#include "policies/passes.h"
#include "policies/rewrite.h"
#include "policies/untouched.h"

namespace superneurons {

Result<Plan> recorded(const PolicyContext& context, const Plan& incoming) {
  if (std::optional<Error> error = refuse_unless_untouched(context, incoming, "recorded"))
    return *error;
  const Trace& trace = context.trace;
  std::vector<std::uint32_t> run_at(trace.ops.size(), 0);
  for (std::uint32_t i = 0; i < incoming.steps.size(); ++i)
    if (incoming.steps[i].kind == StepKind::run) run_at[incoming.steps[i].subject] = i;
  Edits edits(incoming.steps.size());
  for (std::uint32_t i = 0; i < incoming.steps.size(); ++i) {
    const PlanStep& step = incoming.steps[i];
    if (step.kind != StepKind::free) continue;
    const std::optional<OpId> before = trace[step.tensor()].freed_before;
    // At the end there is nothing to move; a home must be left when keep_all leaves it.
    if (!before || before->index >= trace.ops.size() || run_at[before->index] > i) continue;
    std::string why;
    if (context.explain)
      why = fmt::format("the program freed {} before {}", trace[step.tensor()].name,
                        trace[*before].name);
    edits.remove(i);
    edits.insert(run_at[before->index], Rank::free, step, std::move(why));
  }
  return std::move(edits).apply(incoming);
}

}  // namespace superneurons
