#include "policies/untouched.h"

#include <fmt/core.h>

#include <algorithm>

namespace superneurons {

std::optional<Error> refuse_unless_untouched(const PolicyContext& context, const Plan& incoming,
                                             std::string_view policy) {
  const Plan start = keep_all_plan(context.trace);
  const auto same = [](const PlanStep& a, const PlanStep& b) {
    return a.kind == b.kind && a.subject == b.subject && a.choice == b.choice &&
           a.discard == b.discard;
  };
  const auto same_place = [](Begin a, Begin b) { return a.place == b.place; };
  if (std::equal(start.steps.begin(), start.steps.end(), incoming.steps.begin(),
                 incoming.steps.end(), same) &&
      std::equal(start.begin.begin(), start.begin.end(), incoming.begin.begin(),
                 incoming.begin.end(), same_place))
    return {};
  return Error{ErrorCode::bad_usage,
               fmt::format("{} cannot follow a pass that changed the plan (put it first)", policy)};
}

}  // namespace superneurons
