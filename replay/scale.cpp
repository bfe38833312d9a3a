#include "replay/scale.h"

#include <algorithm>

namespace superneurons {
namespace {

struct Ratio {
  std::int64_t numerator, denominator;

  Bytes floor(Bytes bytes) const { return scaled(bytes, 0); }
  Bytes ceil(Bytes bytes) const { return scaled(bytes, denominator - 1); }

 private:
  Bytes scaled(Bytes bytes, std::int64_t extra) const {
    const auto product = static_cast<__int128>(bytes.count) * numerator + extra;
    return {static_cast<std::int64_t>(product / denominator)};
  }
};

}  // namespace

Result<Trace> scale_bytes(const Trace& trace, std::int64_t numerator, std::int64_t denominator) {
  if (numerator <= 0 || denominator < numerator)
    return Error{ErrorCode::bad_usage, "a scale of bytes is a fraction N/D with 0 < N <= D"};
  const Ratio ratio{numerator, denominator};
  Trace scaled = trace;
  for (Tensor& tensor : scaled.tensors) tensor.bytes = ratio.ceil(tensor.bytes);
  const auto scale_access = [&](Access& access) {
    const Bytes begin = ratio.floor(access.offset);
    const Bytes end =
        std::min(ratio.ceil(access.offset + access.length), scaled[access.tensor].bytes);
    access.offset = begin;
    access.length = end - begin;
  };
  for (Op& op : scaled.ops) {
    for (Access& access : op.reads) scale_access(access);
    for (Access& access : op.writes) scale_access(access);
    for (Choice& choice : op.choices) choice.workspace = ratio.ceil(choice.workspace);
    op.bytes_moved = ratio.ceil(op.bytes_moved);
  }
  if (numerator != denominator)
    scaled.capabilities[static_cast<std::size_t>(Fact::native)] = Capability::none;
  scaled.origin +=
      " (bytes x " + std::to_string(numerator) + "/" + std::to_string(denominator) + ")";
  return scaled;
}

}  // namespace superneurons
