// Text form of plans: JSON Lines, as traces/FORMAT.md describes. Tensors and ops are given by
// index.
#pragma once

#include <string>
#include <string_view>

#include "ir/plan.h"
#include "ir/result.h"

namespace superneurons {

Result<Plan> read_plan(const std::string& path);
Result<Plan> parse_plan(std::string_view text, const std::string& name);
std::string format_plan(const Plan& plan);
Status write_plan(const Plan& plan, const std::string& path);

}  // namespace superneurons
