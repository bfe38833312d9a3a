// Costs of ops by lookup: what was measured of one network serves another with the same ops.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

/// Ops with the same signature do the same work: kind, attributes (but for those that are only
/// numbers to compute with: rates, epsilons), arithmetic (fp32 or tf32), sizes of all operands and
/// which of them are in place. The batch is in the attributes and sizes.
std::string cost_signature(const Trace& trace, const Op& op);

struct CopiedCosts {
  std::size_t matched = 0;  // ops whose costs were found
  std::size_t of = 0;       // ops of the trace
};

/// Gives each op of `trace` whose signature occurs in a recorded trace the choices measured there,
/// with `omits` turned into its own tensors, and host_ns and kernels. Where a signature occurs more
/// than once, times are medians over all its ops, kernels those of the op nearest to the median,
/// and the recorded choice is the one recorded most often (of equals the fastest). Other ops keep
/// what they have, say of estimate_durations().
///
/// The facts `durations`, `workspaces`, `choices`, `kernels` and `host_times` are as known as in
/// the least of the recorded traces if every op was matched, else at most `inferred`.
/// `trace.device` becomes the recorded one; origin is extended by how many ops matched which
/// traces.
///
/// Error bad_input if a recorded trace has no measured times or no attributes of native ops, if
/// they were measured on different devices, or if no op matches.
Result<CopiedCosts> copy_costs(Trace& trace, std::span<const Trace> recorded);

}  // namespace superneurons
