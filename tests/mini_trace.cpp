#include "tests/mini_trace.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace superneurons {
namespace {

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "mini trace: %s\n", why.c_str());
  std::abort();
}

std::int64_t number(std::string text) {
  std::int64_t unit = 1;
  if (text.ends_with('K')) unit = 1 << 10;
  if (text.ends_with('M')) unit = 1 << 20;
  if (unit != 1) text.pop_back();
  return std::stoll(text) * unit;
}

TensorId tensor_named(const Trace& trace, const std::string& name) {
  const auto found = std::find_if(trace.tensors.begin(), trace.tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  if (found == trace.tensors.end()) fail("no tensor " + name);
  return {static_cast<std::uint32_t>(found - trace.tensors.begin())};
}

Access access_of(const Trace& trace, const std::string& text) {
  const auto bracket = text.find('[');
  const TensorId id = tensor_named(trace, text.substr(0, bracket));
  if (bracket == std::string::npos) return {id, {}, trace[id].bytes};
  const auto colon = text.find(':', bracket);
  const std::int64_t begin = number(text.substr(bracket + 1, colon - bracket - 1));
  const std::int64_t end = number(text.substr(colon + 1, text.size() - colon - 2));
  return {id, {begin}, {end - begin}};
}

template <std::size_t N>
std::size_t position(const std::array<std::string_view, N>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) fail("unknown word " + name);
  return static_cast<std::size_t>(found - names.begin());
}

void add_tensor(Trace& trace, std::istringstream& words) {
  Tensor tensor;
  std::string size, role, word;
  words >> tensor.name >> size >> role;
  tensor.bytes = {number(size)};
  tensor.role = static_cast<Role>(position(kRoleNames, role));
  tensor.dtype = "u8";
  trace.tensors.push_back(tensor);
  const TensorId id{static_cast<std::uint32_t>(trace.tensors.size() - 1)};
  while (words >> word) {
    if (word == "carry") trace.carry.push_back({id, id});
    else fail("unknown word " + word);
  }
}

void add_op(Trace& trace, std::istringstream& words) {
  Op op;
  std::string phase, word;
  words >> op.name >> phase;
  op.kind = op.name;
  op.phase = static_cast<Phase>(position(kPhaseNames, phase));
  while (words >> word && word != ":") {
    if (word == "once") op.rerunnable = false;
    else if (word == "random") op.random = true;
    else if (word.starts_with("fixed=")) op.once.push_back(tensor_named(trace, word.substr(6)));
    else fail("unknown flag " + word);
  }
  bool writing = false;
  op.choices.emplace_back();
  while (words >> word) {
    if (word == "->") writing = true;
    else if (word == "|")
      op.choices.push_back({.algorithm = "alt" + std::to_string(op.choices.size())});
    else if (word.starts_with("@")) op.choices.back().ns = {number(word.substr(1))};
    else if (word.starts_with("ws=")) op.choices.back().workspace = {number(word.substr(3))};
    else (writing ? op.writes : op.reads).push_back(access_of(trace, word));
  }
  trace.ops.push_back(op);
}

}  // namespace

Trace mini(std::string_view text) {
  Trace trace;
  trace.name = "mini";
  trace.capabilities.fill(Capability::exact);
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    line = line.substr(0, line.find('#'));
    std::istringstream words(line);
    std::string verb;
    if (!(words >> verb)) continue;
    if (verb == "tensor") {
      add_tensor(trace, words);
    } else if (verb == "op") {
      add_op(trace, words);
    } else if (verb == "carry") {
      std::string end, start;
      words >> end >> start;
      trace.carry.push_back({tensor_named(trace, end), tensor_named(trace, start)});
    } else {
      fail("unknown verb " + verb);
    }
  }
  return trace;
}

void access_whole_tensors(Trace& trace) {
  for (Op& op : trace.ops)
    for (std::vector<Access>* accesses : {&op.reads, &op.writes})
      for (Access& access : *accesses) access.length = trace[access.tensor].bytes;
}

}  // namespace superneurons
