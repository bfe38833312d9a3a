#include "replay/host_native.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "replay/host_choices.h"

namespace superneurons {

std::int64_t Attributes::whole(const std::string& name, std::int64_t least) {
  const double value = real(name);
  const bool good =
      value >= static_cast<double>(least) && value < 2147483648.0 && value == std::floor(value);
  require(value < 2147483648.0,
          fmt::format("attribute {} is {:.0f}, more than a kernel on the host takes (below 2^31: "
                      "would be of a smaller batch)",
                      name, value));
  require(good, fmt::format("attribute {} must be a whole number from {} on", name, least));
  return good ? static_cast<std::int64_t>(value) : least;
}

double Attributes::real(const std::string& name) {
  const auto found = op_.attributes.find(name);
  require(found != op_.attributes.end(), "attribute " + name + " is missing");
  if (found == op_.attributes.end()) return 0;
  require(std::isfinite(found->second), "attribute " + name + " is not a number");
  return found->second;
}

std::int64_t Attributes::padding(const std::string& name) {
  return whole(op_.attributes.contains(name) ? name : "pad", 0);
}

void Attributes::require(bool holds, std::string_view why) {
  if (!holds && fault_.empty()) fault_ = why;
}

std::int64_t product(std::initializer_list<std::int64_t> factors) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  std::int64_t result = 1;
  for (const std::int64_t factor : factors) {
    if (factor == 0) return 0;
    if (result > kHuge / factor) return kHuge;
    result *= factor;
  }
  return result;
}

namespace {

const HostKind* find_kind(std::string_view name) {
  for (const std::span<const HostKind> kinds :
       {host_convolution_kinds(), host_linear_kinds(), host_window_kinds(), host_batch_norm_kinds(),
        host_elementwise_kinds()})
    for (const HostKind& kind : kinds)
      if (kind.name == name) return &kind;
  return nullptr;
}

/// Why the operands do not match, or "".
std::string operand_fault(const Trace& trace, std::string_view what,
                          const std::vector<Access>& accesses,
                          const std::vector<std::int64_t>& wanted) {
  if (accesses.size() != wanted.size())
    return fmt::format("has {} {} where its kind has {}", accesses.size(), what, wanted.size());
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const std::string& name = trace[accesses[i].tensor].name;
    if (accesses[i].length.count != wanted[i])
      return fmt::format("{} {} ({}) has {} bytes where its attributes make {}", what, i, name,
                         accesses[i].length.count, wanted[i]);
    if (accesses[i].offset.count % 4 != 0)
      return fmt::format("{} {} ({}) does not begin on a word", what, i, name);
  }
  return "";
}

std::string choice_fault(const Op& op, const Operands& operands) {
  for (const Choice& choice : op.choices) {
    const bool im2col = operands.workspace > 0 && choice.algorithm == "IM2COL";
    const bool direct =
        choice.algorithm.empty() || (operands.workspace > 0 && choice.algorithm == "DIRECT");
    if (!im2col && !direct)
      return fmt::format("has no algorithm '{}' on the host ({})", choice.algorithm,
                         operands.workspace > 0 ? "IM2COL or DIRECT" : "leave it empty");
    if (im2col && choice.workspace.count < operands.workspace)
      return fmt::format("grants IM2COL {} bytes of workspace where it needs {}",
                         choice.workspace.count, operands.workspace);
    for (const TensorId omitted : choice.omits) {
      const bool fine =
          std::any_of(operands.omittable.begin(), operands.omittable.end(),
                      [&](std::size_t write) { return op.writes[write].tensor == omitted; });
      if (!fine) return "omits an output that the host always writes";
    }
  }
  return "";
}

std::string op_fault(const Trace& trace, const Op& op) {
  const HostKind* kind = find_kind(op.kind);
  if (kind == nullptr) return fmt::format("no native kernel of kind '{}' on the host", op.kind);
  Attributes attributes(op);
  const Operands operands = kind->operands(op, attributes);
  if (!attributes.fault().empty()) return attributes.fault();
  std::string fault = operand_fault(trace, "reads", op.reads, operands.reads);
  if (fault.empty()) fault = operand_fault(trace, "writes", op.writes, operands.writes);
  return fault.empty() ? choice_fault(op, operands) : fault;
}

class HostNative final : public Kernels {
 public:
  Status prepare(const Trace& trace, std::uint64_t seed) override {
    trace_ = &trace;
    seed_ = seed;
    kinds_.clear();
    for (const Op& op : trace.ops) {
      const std::string fault = op_fault(trace, op);
      if (!fault.empty())
        return Error{ErrorCode::bad_input, fmt::format("op {} ({}): {}", op.name, op.kind, fault)};
      kinds_.push_back(find_kind(op.kind));
    }
    return Ok{};
  }

  Status run(const KernelCall& call, void*) override {
    const HostCall host{(*trace_)[call.op], call, seed_};
    return kinds_[call.op.index]->run(host);
  }

 private:
  const Trace* trace_ = nullptr;
  std::uint64_t seed_ = 0;
  std::vector<const HostKind*> kinds_;  // of each op
};

}  // namespace

Status enumerate_host_choices(Trace& trace, Bytes workspace_limit, bool all) {
  for (Op& op : trace.ops) {
    const HostKind* kind = find_kind(op.kind);
    if (kind == nullptr)
      return Error{
          ErrorCode::bad_input,
          fmt::format("op {}: no native kernel of kind '{}' on the host", op.name, op.kind)};
    Attributes attributes(op);
    const Operands operands = kind->operands(op, attributes);
    if (!attributes.fault().empty())
      return Error{ErrorCode::bad_input,
                   fmt::format("op {} ({}): {}", op.name, op.kind, attributes.fault())};
    if (operands.workspace == 0) continue;
    op.choices.clear();
    op.recorded = 0;
    const Bytes workspace{operands.workspace};
    if (workspace <= workspace_limit)
      op.choices.push_back({.algorithm = "IM2COL", .workspace = workspace});
    if (all || op.choices.empty()) op.choices.push_back({.algorithm = "DIRECT"});
  }
  return Ok{};
}

std::unique_ptr<Kernels> make_host_native_kernels() { return std::make_unique<HostNative>(); }

}  // namespace superneurons
