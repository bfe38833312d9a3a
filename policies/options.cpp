#include "policies/options.h"

#include <fmt/core.h>

#include <algorithm>

#include "ir/files.h"

namespace superneurons {

Error bad_option(std::string_view policy, std::string_view option, std::string_view value,
                 std::string_view right) {
  return {ErrorCode::bad_usage,
          fmt::format("policy {}: bad {} '{}' (it takes {})", policy, option, value, right)};
}

Result<std::string> one_of(const PolicyContext& context, std::string_view policy,
                           std::string_view option,
                           std::initializer_list<std::string_view> values) {
  const std::string& value = context.options.at(std::string(option));
  if (std::find(values.begin(), values.end(), value) != values.end()) return value;
  std::string right;
  for (const std::string_view name : values)
    right += fmt::format("{}{}", right.empty() ? "" : " or ", name);
  return bad_option(policy, option, value, right);
}

Result<Bytes> bytes_of(const PolicyContext& context, std::string_view policy,
                       std::string_view option) {
  const std::string& value = context.options.at(std::string(option));
  if (Result<Bytes> bytes = parse_bytes(value)) return *bytes;
  return bad_option(policy, option, value, "a size such as 64KiB");
}

}  // namespace superneurons
