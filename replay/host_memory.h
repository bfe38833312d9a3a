// Memory of the host backend: one aligned piece, first contents, checksums, guard bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "memory/allocator.h"
#include "memory/placement.h"
#include "replay/initial.h"

namespace superneurons {

/// Exactly `size` bytes, aligned to the allocation unit; untouched pages cost nothing.
class HostMemory {
 public:
  explicit HostMemory(Bytes size)  // throws std::bad_alloc
      : size_(static_cast<std::size_t>(size.count)),
        data_(static_cast<std::byte*>(::operator new(size_, kAlignment))) {}

  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  Bytes bytes() const { return {static_cast<std::int64_t>(size_)}; }

 private:
  static constexpr std::align_val_t kAlignment{static_cast<std::size_t>(kAllocationUnit.count)};
  struct Release {
    void operator()(std::byte* data) const { ::operator delete(data, kAlignment); }
  };
  std::size_t size_;
  std::unique_ptr<std::byte, Release> data_;
};

/// Error bad_usage for sizes below nothing, does_not_fit for more than this machine's memory.
Status fits_host(Bytes arena, Bytes pool);

/// First content of a tensor, as initial_word() wants it.
struct Content {
  Init init = Init::hashed;
  float scale = 0;
  std::uint64_t key = 0;
};
/// Error bad_input for an unknown `init` or labels without a positive scale.
Result<Content> first_content(const Trace& trace, TensorId tensor, std::uint64_t seed);

void fill(std::byte* data, Bytes bytes, const Content& content);
std::uint64_t host_checksum(const std::byte* data, Bytes bytes);

/// A range of the arena with `guard` bytes before and after it.
struct GuardedRange {
  std::string name;
  Range range;
};
/// Adds the tensors at these addresses of the arena (null: absent), whole, as they were allocated.
void add_held(const Trace& trace, const std::vector<Access>& accesses,
              const std::vector<std::byte*>& addresses, const HostMemory& arena,
              std::vector<GuardedRange>& ranges);
void fill_guards(HostMemory& arena, const GuardedRange& guarded, Bytes guard);
/// "12 bytes before the start" / "3 bytes past the end" of the nearest damage, or "".
std::string guard_damage(const HostMemory& arena, const GuardedRange& guarded, Bytes guard);

}  // namespace superneurons
