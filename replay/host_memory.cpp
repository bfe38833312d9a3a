#include "replay/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "ir/files.h"
#include "ir/result.h"

namespace superneurons {
namespace {

/// Byte `offset` of the arena as a guard. Depends on the place, so that a copied guard shows too.
std::byte guard_byte(std::int64_t offset) {
  return static_cast<std::byte>(mix(static_cast<std::uint64_t>(offset)) >> 56);
}

/// The guard before (or after) the range, cut to the arena.
Range side(const HostMemory& arena, const Range& range, Bytes guard, bool after) {
  const Bytes size{static_cast<std::int64_t>(arena.size())};
  const Bytes begin = after ? range.offset + range.bytes : range.offset - guard;
  const Bytes from = std::clamp(begin, Bytes{}, size);
  const Bytes to = std::clamp(begin + guard, Bytes{}, size);
  return {from, to - from};
}

}  // namespace

Status fits_host(Bytes arena, Bytes pool) {
  const Bytes there{static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE)};
  if (arena < 0_B || pool < 0_B)
    return Error{ErrorCode::bad_usage, "an arena cannot be smaller than nothing"};
  if (arena <= there && pool <= there - arena) return Ok{};
  return Error{ErrorCode::does_not_fit,
               "an arena of " + format_bytes(arena) + " and a host pool of " + format_bytes(pool) +
                   " do not fit this host's memory (" + format_bytes(there) + ")"};
}

Result<Content> first_content(const Trace& trace, TensorId tensor, std::uint64_t seed) {
  static constexpr std::array<std::string_view, 5> kNames = {"", "zeros", "ones", "uniform",
                                                             "labels"};
  const Tensor& described = trace[tensor];
  const auto name = std::find(kNames.begin(), kNames.end(), described.init);
  if (name == kNames.end())
    return Error{ErrorCode::bad_input, "tensor " + described.name + ": unknown init \"" +
                                           described.init +
                                           "\" (zeros, ones, uniform, labels or none)"};
  const auto init = static_cast<Init>(name - kNames.begin());
  if (init == Init::labels && !(described.init_scale >= 1 && described.init_scale <= 1e9))
    return Error{ErrorCode::bad_input,
                 "tensor " + described.name + ": labels need init_scale, the number of classes"};
  return Content{init, static_cast<float>(described.init_scale), mix(seed, tensor.index)};
}

void fill(std::byte* data, Bytes bytes, const Content& content) {
  for (std::int64_t at = 0; at < bytes.count; at += 4) {
    const std::uint32_t word =
        initial_word(content.init, content.scale, content.key, static_cast<std::uint64_t>(at / 4));
    std::memcpy(data + at, &word,
                static_cast<std::size_t>(std::min<std::int64_t>(4, bytes.count - at)));
  }
}

std::uint64_t host_checksum(const std::byte* data, Bytes bytes) {
  std::uint64_t sum = 0;
  for (std::int64_t at = 0; at < bytes.count; at += 4) {
    std::uint32_t word = 0;
    std::memcpy(&word, data + at,
                static_cast<std::size_t>(std::min<std::int64_t>(4, bytes.count - at)));
    sum += checksum_word(word, static_cast<std::uint64_t>(at / 4));
  }
  return sum;
}

void add_held(const Trace& trace, const std::vector<Access>& accesses,
              const std::vector<std::byte*>& addresses, const HostMemory& arena,
              std::vector<GuardedRange>& ranges) {
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    if (addresses[i] == nullptr) continue;
    const Tensor& tensor = trace[accesses[i].tensor];
    const Bytes offset{addresses[i] - arena.data() - accesses[i].offset.count};
    ranges.push_back({tensor.name, {offset, tensor.bytes}});
  }
}

void fill_guards(HostMemory& arena, const GuardedRange& guarded, Bytes guard) {
  for (const bool after : {false, true}) {
    const Range range = side(arena, guarded.range, guard, after);
    for (std::int64_t i = range.offset.count; i < (range.offset + range.bytes).count; ++i)
      arena.data()[i] = guard_byte(i);
  }
}

std::string guard_damage(const HostMemory& arena, const GuardedRange& guarded, Bytes guard) {
  const Range before = side(arena, guarded.range, guard, false);
  for (std::int64_t i = (before.offset + before.bytes).count - 1; i >= before.offset.count; --i)
    if (arena.data()[i] != guard_byte(i))
      return std::to_string((guarded.range.offset.count - i)) + " bytes before the start";
  const Range after = side(arena, guarded.range, guard, true);
  for (std::int64_t i = after.offset.count; i < (after.offset + after.bytes).count; ++i)
    if (arena.data()[i] != guard_byte(i))
      return std::to_string(i - (guarded.range.offset + guarded.range.bytes).count + 1) +
             " bytes past the end";
  return "";
}

}  // namespace superneurons
