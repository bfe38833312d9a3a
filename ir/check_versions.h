// The checker's own bookkeeping of versions: which value of a tensor each op reads and writes, and
// how many readers each value has. On purpose not shared with ir/dataflow.h, which planners use.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ir/trace.h"

namespace superneurons {

inline constexpr std::uint32_t kNoIndex = 0xffffffff;

/// One tensor that an op reads or keeps bytes of, with the version it needs.
struct CheckedNeed {
  TensorId tensor;
  std::uint32_t version = 0;
  bool once = false;     // reruns skip it
  bool written = false;  // the op writes it too: in place, or a partial write
  bool read = false;     // false: only a partial write that keeps the other bytes
};

struct CheckedMake {
  TensorId tensor;
  std::uint32_t version = 0;
  bool once = false;
  bool updates = false;  // needs the version before
};

/// Values are numbered: version v of tensor t is value `first_value[t] + v`.
struct CheckedVersions {
  std::vector<CheckedNeed> needs;  // of op i: [first_need[i], first_need[i + 1])
  std::vector<CheckedMake> makes;
  std::vector<std::uint32_t> first_need, first_make;
  std::vector<std::uint32_t> last;         // by tensor: version after the recorded step
  std::vector<std::uint32_t> first_value;  // by tensor, one more at the end
  std::vector<std::uint32_t> readers;      // by value: ops that need it
  std::vector<std::uint32_t> last_reader;  // by value: op, kNoIndex if none
  std::vector<std::uint32_t> maker;        // by value: op, kNoIndex for version 0

  std::uint32_t value(TensorId tensor, std::uint32_t version) const {
    return first_value[tensor.index] + version;
  }
  std::span<const CheckedNeed> needs_of(OpId op) const {
    return std::span(needs).subspan(first_need[op.index],
                                    first_need[op.index + 1] - first_need[op.index]);
  }
  std::span<const CheckedMake> makes_of(OpId op) const {
    return std::span(makes).subspan(first_make[op.index],
                                    first_make[op.index + 1] - first_make[op.index]);
  }
};

/// Linear in the number of accesses. The trace must have no fault (find_fault).
CheckedVersions checked_versions(const Trace& trace);

}  // namespace superneurons
