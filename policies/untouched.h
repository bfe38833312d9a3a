// For policies that only make sense on the plan that all passes start from.
#pragma once

#include <optional>
#include <string_view>

#include "policies/policy.h"

namespace superneurons {

/// bad_usage unless `incoming` has the steps of keep_all_plan.
std::optional<Error> refuse_unless_untouched(const PolicyContext& context, const Plan& incoming,
                                             std::string_view policy);

}  // namespace superneurons
