// A one-line-per-item language for traces in tests. Sizes in bytes or with K (KiB), M; times in ns.
//
//     Trace trace = mini(R"(
//       tensor w 4K parameter carry        # carried from step to step onto itself
//       tensor x 8K input carry
//       tensor y 8K activation
//       carry g_new g_old                  # two-tensor carry: end start
//       op conv forward : x w -> y @1000 ws=64K
//       op relu forward : y -> y @10       # in place
//       op part forward : y[0:4K] -> z[4K:8K] @10
//       op step update once : w g -> w @5
//     )");
//
// Flags between phase and ':' : `once` (must not be rerun), `random`, `fixed=t` (t is in op.once).
// After the writes: @ns, ws=bytes; `| @ns ws=bytes` adds another choice.
#pragma once

#include <string_view>

#include "ir/trace.h"

namespace superneurons {

/// Aborts with a message on a malformed text: test code only. All capabilities are `exact`.
Trace mini(std::string_view text);

/// Lets every access cover its whole tensor: for tests that give tensors other sizes.
void access_whole_tensors(Trace& trace);

}  // namespace superneurons
