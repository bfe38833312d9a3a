// Reading a policy's options. The registry has checked their names and filled in the defaults.
#pragma once

#include <initializer_list>
#include <string_view>

#include "policies/policy.h"

namespace superneurons {

/// The option's value, which must be one of `values`.
Result<std::string> one_of(const PolicyContext& context, std::string_view policy,
                           std::string_view option, std::initializer_list<std::string_view> values);

/// A size such as "64KiB".
Result<Bytes> bytes_of(const PolicyContext& context, std::string_view policy,
                       std::string_view option);

/// bad_usage: "policy: option=value (what would be right)".
Error bad_option(std::string_view policy, std::string_view option, std::string_view value,
                 std::string_view right);

}  // namespace superneurons
