// The policies that a command is given as a list.
#pragma once

#include <string>
#include <vector>

#include "ir/result.h"

namespace superneurons {

/// "liveness,offload:need=all,min=1MiB,exec:./a.py b,c": commas part policies, but not the options
/// of one, and a command takes all up to the next ",exec:", or to the end of its argument.
std::vector<std::string> split_policies(const std::vector<std::string>& arguments);

/// The names of `superneurons policies`, but for models of frameworks.
std::vector<std::string> all_policies();

/// Names, options and their values, before any work. Error bad_usage.
Status known_policies(const std::vector<std::string>& names);

}  // namespace superneurons
