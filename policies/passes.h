// The passes of the registry, one file each (policies/NAME.cpp). What each does and its options:
// policies/registry.cpp.
#pragma once

#include "policies/policy.h"

namespace superneurons {

Result<Plan> keep_all(const PolicyContext& context, const Plan& incoming);
Result<Plan> recorded(const PolicyContext& context, const Plan& incoming);
Result<Plan> liveness(const PolicyContext& context, const Plan& incoming);
Result<Plan> offload(const PolicyContext& context, const Plan& incoming);
Result<Plan> offload_state(const PolicyContext& context, const Plan& incoming);
Result<Plan> tensor_cache(const PolicyContext& context, const Plan& incoming);
Result<Plan> recompute(const PolicyContext& context, const Plan& incoming);
Result<Plan> balance(const PolicyContext& context, const Plan& incoming);
Result<Plan> mix(const PolicyContext& context, const Plan& incoming);
Result<Plan> workspace(const PolicyContext& context, const Plan& incoming);

}  // namespace superneurons
