// Which bytes a surrogate may digest. A trace may read bytes that nobody wrote (a buffer filled in
// part, then read whole); their contents depend on addresses, so they stay out of the digest.
#pragma once

#include <vector>

#include "ir/trace.h"

namespace superneurons {

/// A defined byte range of one read: bytes [offset, offset + length) of the range op.reads[read].
struct SurrogatePiece {
  std::uint32_t read = 0;
  Bytes offset{};
  Bytes length{};
  bool once = false;  // of a tensor in op.once: enters the digest of such tensors only, because a
                      // rerun does not read it
};

/// Per op, the pieces in order of reads and offset. Mostly one per read: the whole of it.
std::vector<std::vector<SurrogatePiece>> surrogate_pieces(const Trace& trace);

}  // namespace superneurons
