// Random traces and random lawful plans for property tests. The same seed gives the same result on
// every machine.
#pragma once

#include <cstdint>

#include "ir/plan.h"
#include "ir/trace.h"

namespace superneurons {

/// splitmix64, so that tests do not depend on a standard library's distributions.
struct TestRandom {
  std::uint64_t state = 0;
  std::uint64_t next();
  /// Below `count`; 0 if there is nothing to choose from.
  std::uint32_t below(std::size_t count);
  bool chance(int percent) { return below(100) < static_cast<std::uint32_t>(percent); }
};

struct RandomTraceOptions {
  int layers = 6;         // of forward; a layer is one to three ops and its backward as many
  Bytes largest = 512_B;  // tensor; sizes are odd on purpose
};

/// A training step with chains, fan-out, updates in place, partial reads and writes, accumulation,
/// ops of several outputs, parameters, momentum, running statistics (`once`), tied parameters,
/// random ops, ops that must run once, choices with workspaces and omitted outputs, and one of four
/// ways to hold gradients: temporaries, carried onto themselves and zeroed, new storages that the
/// next training step applies first, or new storages whose old ones nobody needs. Has no fault, and
/// keep_all_plan of it is lawful.
Trace random_trace(std::uint64_t seed, const RandomTraceOptions& options = {});

/// keep_all_plan with random edits that check() accepted: early frees, offload and prefetch, reruns
/// with and without discarded outputs, other choices, carries that begin on the host. Its budgets
/// are the smallest that check() accepts.
Plan random_lawful_plan(const Trace& trace, std::uint64_t seed);

}  // namespace superneurons
