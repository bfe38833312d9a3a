// Which ways to do an op may stand in for the recorded one, and which of them are fastest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/trace.h"

namespace superneurons {

/// How far a choice may differ from the recorded one. Whatever the rule, it makes the same outputs.
struct ChoiceRule {
  bool any_order = false;      // also those that are not deterministic
  bool any_math = false;       // also in another math mode than recorded
  std::optional<Bytes> limit;  // most workspace
};

/// Numbers of the choices that the rule allows, fastest first; of equally fast ones the least
/// workspace first. Those that were never measured (0 ns beside others that were) come last; where
/// none was, the recorded one comes first. Never empty: where the rule allows none, because of
/// `limit` or because no choice is deterministic, it is the one of least workspace without that.
std::vector<std::uint32_t> choices_by_speed(const Op& op, const ChoiceRule& rule = {});

/// The one of `choices` with the least workspace, the first of equals. `choices` is not empty.
std::uint32_t least_workspace(const Op& op, const std::vector<std::uint32_t>& choices);

}  // namespace superneurons
