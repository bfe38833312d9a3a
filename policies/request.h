// The text of a request, "pass[:key=value[,key=value]]+pass...", made into passes of the registry.
// "a+b/c" offers alternatives, of which the best plan is taken; `+` binds closer than `/`.
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

/// As a request writes it, with the options that are not at their default.
std::string text_of(const Pass& pass);

/// bad_usage if the text names a model of a framework and the trace is not lowered as that wants.
std::optional<Error> refuse_other_lowering(const Trace& trace, std::string_view text);

/// bad_usage for an unknown name or option, and for an option's value that its pass does not take:
/// each pass plans a trace without ops, for which it reads its options and does nothing else.
Status check_policy(std::string_view text);

/// bad_usage for an unknown allocator, with the names that there are.
Status check_allocator(const std::string& name);

/// The alternatives, one at least, each a sequence of passes. A composition's or a model's name
/// stands for its text; one that offers alternatives makes as many of what it is part of. Unknown
/// names and options, and more than 64 alternatives, are bad_usage.
Result<std::vector<std::vector<Pass>>> parse_policy(std::string_view text);

}  // namespace superneurons
