#include "cli/policy_list.h"

#include <algorithm>
#include <string_view>

#include "policies/exec_policy.h"
#include "policies/policy.h"
#include "policies/request.h"

namespace superneurons {
namespace {

/// The comma that ends a command: outside quotes, with another command behind it.
std::size_t end_of_command(std::string_view text, std::size_t begin) {
  char quote = 0;
  for (std::size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (quote) quote = c == quote ? 0 : quote;
    else if (c == '\'' || c == '"') quote = c;
    else if (c == ',' && is_exec(text.substr(i + 1))) return i;
  }
  return text.size();
}

}  // namespace

std::vector<std::string> split_policies(const std::vector<std::string>& arguments) {
  std::vector<std::string> names;
  for (const std::string& argument : arguments) {
    std::size_t end = 0;
    for (std::size_t begin = 0; begin <= argument.size(); begin = end + 1) {
      const bool command = is_exec(std::string_view(argument).substr(begin));
      end = command ? end_of_command(argument, begin)
                    : std::min(argument.find(',', begin), argument.size());
      const std::string piece = argument.substr(begin, end - begin);
      const bool option = piece.find('=') < piece.find_first_of(":+");
      if (option && !command && begin > 0) names.back() += "," + piece;
      else names.push_back(piece);
    }
  }
  return names;
}

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const PolicyEntry& entry : policies()) names.emplace_back(entry.name);
  for (const CompositionEntry& entry : compositions()) names.emplace_back(entry.name);
  return names;
}

Status known_policies(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const Status checked = is_exec(name) ? check_exec(name) : check_policy(name);
    if (!checked) return checked;
  }
  return Ok{};
}

}  // namespace superneurons
