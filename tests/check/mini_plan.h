// Plans in tests, one step a line:
//
//     begin w host          # device (the default), host, nowhere; of the carry that starts as w
//     budget 64 host 16     # device and host bytes; without it there is plenty of both
//     run conv              # its recorded choice
//     run conv 1 discard y  # choice 1; the outputs after `discard` go to scratch
//     free y                # also offload, prefetch, free_host
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "ir/plan.h"

namespace superneurons {

/// Index of the item with that name, or of `names` itself where the item is a word. Aborts if none.
template <class Items, class Name>
std::uint32_t index_of(const Items& items, const std::string& wanted, Name name) {
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const auto& item) { return name(item) == wanted; });
  if (found == items.end()) {
    std::fprintf(stderr, "mini plan: nothing is called '%s'\n", wanted.c_str());
    std::abort();
  }
  return static_cast<std::uint32_t>(found - items.begin());
}

inline TensorId tensor_id(const Trace& trace, const std::string& name) {
  return {index_of(trace.tensors, name, [](const Tensor& tensor) { return tensor.name; })};
}

inline void add_run(const Trace& trace, std::istringstream& words, Plan& plan) {
  std::string word;
  words >> word;
  const OpId op{index_of(trace.ops, word, [](const Op& item) { return item.name; })};
  PlanStep step = run_step(op, trace[op].recorded);
  while (words >> word) {
    if (word == "discard") continue;
    if (std::isdigit(static_cast<unsigned char>(word[0])))
      step.choice = static_cast<std::uint32_t>(std::stoul(word));
    else step.discard.push_back(tensor_id(trace, word));
  }
  plan.steps.push_back(step);
}

inline Plan mini_plan(const Trace& trace, std::string_view text) {
  const auto same = [](std::string_view name) { return std::string(name); };
  Plan plan;
  plan.policy = "mini";
  plan.budget = {1_MiB, 1_MiB};
  plan.begin.resize(trace.carry.size());
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string verb, name, word;
    if (!(words >> verb)) continue;
    if (verb == "run") {
      add_run(trace, words, plan);
      continue;
    }
    words >> name;
    if (verb == "budget") {
      plan.budget.device = {std::stoll(name)};
      if (words >> word >> name) plan.budget.host = {std::stoll(name)};
    } else if (verb == "begin") {
      words >> word;
      const std::uint32_t carry =
          index_of(trace.carry, name, [&](const Carry& item) { return trace[item.start].name; });
      plan.begin[carry].place = static_cast<Place>(index_of(kPlaceNames, word, same));
    } else {
      plan.steps.push_back(tensor_step(static_cast<StepKind>(index_of(kStepKindNames, verb, same)),
                                       tensor_id(trace, name)));
    }
  }
  return plan;
}

}  // namespace superneurons
