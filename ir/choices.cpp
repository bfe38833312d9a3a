#include "ir/choices.h"

#include <algorithm>
#include <tuple>

namespace superneurons {
namespace {

/// All but the limit. A choice that omits what the recorded one makes would change what others
/// read.
std::vector<std::uint32_t> equivalent(const Op& op, const ChoiceRule& rule) {
  const Choice& recorded = op.choices[op.recorded];
  std::vector<std::uint32_t> same, ordered;
  for (std::uint32_t i = 0; i < op.choices.size(); ++i) {
    const Choice& choice = op.choices[i];
    if (choice.omits != recorded.omits || (!rule.any_math && choice.math != recorded.math))
      continue;
    same.push_back(i);
    if (choice.deterministic) ordered.push_back(i);
  }
  return rule.any_order || ordered.empty() ? same : ordered;
}

}  // namespace

std::vector<std::uint32_t> choices_by_speed(const Op& op, const ChoiceRule& rule) {
  std::vector<std::uint32_t> choices = equivalent(op, rule);
  if (rule.limit) {
    const std::uint32_t least = least_workspace(op, choices);
    std::erase_if(choices, [&](std::uint32_t i) {
      return i != least && op.choices[i].workspace > *rule.limit;
    });
  }
  const auto rank = [&](std::uint32_t i) {
    const Choice& choice = op.choices[i];
    const bool unmeasured = choice.ns <= 0_ns;
    return std::tuple(unmeasured, choice.ns, unmeasured && i != op.recorded, choice.workspace);
  };
  std::stable_sort(choices.begin(), choices.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return rank(a) < rank(b); });
  return choices;
}

std::uint32_t least_workspace(const Op& op, const std::vector<std::uint32_t>& choices) {
  return *std::min_element(choices.begin(), choices.end(), [&](std::uint32_t a, std::uint32_t b) {
    return op.choices[a].workspace < op.choices[b].workspace;
  });
}

}  // namespace superneurons
