// The text of a request, "pass[:key=value[,key=value]]+pass...", made into passes of the registry.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "policies/policy.h"

namespace superneurons {

struct Pass {
  const PolicyEntry* entry = nullptr;
  std::map<std::string, std::string> options;  // defaults filled in
};

/// A composition's name stands for its passes. Unknown names and options are bad_usage.
Result<std::vector<Pass>> parse_passes(std::string_view text);

}  // namespace superneurons
