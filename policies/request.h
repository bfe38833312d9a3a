// The text of a request, "pass[:key=value[,key=value]]+pass...", made into passes of the registry.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "policies/policy.h"

namespace superneurons {

struct Pass {
  const PolicyEntry* entry = nullptr;
  std::map<std::string, std::string> options;  // defaults filled in
};

/// bad_usage if the text names a model of a framework and the trace is not lowered as that wants.
std::optional<Error> refuse_other_lowering(const Trace& trace, std::string_view text);

/// A composition's or a model's name stands for its passes. Unknown names and options are
/// bad_usage.
Result<std::vector<Pass>> parse_passes(std::string_view text);

}  // namespace superneurons
