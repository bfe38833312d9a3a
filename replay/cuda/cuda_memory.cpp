#include "replay/cuda/cuda_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/files.h"
#include "replay/cuda/memory_kernels.h"
#include "replay/host_memory.h"

namespace superneurons {
namespace {

constexpr std::size_t kSlotBytes = 2 * sizeof(unsigned long long);

Result<DeviceMemory> take_arena(Bytes bytes) {
  std::size_t free = 0, total = 0;
  SUPERNEURONS_TRY(cudaMemGetInfo(&free, &total));
  void* arena = nullptr;
  const cudaError_t status =
      bytes.count > 0 ? cudaMalloc(&arena, static_cast<std::size_t>(bytes.count)) : cudaSuccess;
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    const Bytes left{static_cast<std::int64_t>(free)};
    Error error{.code = ErrorCode::does_not_fit};
    error.message = fmt::format("the arena takes {}, but only {} of {} of device memory are free",
                                format_bytes(bytes), format_bytes(left),
                                format_bytes({static_cast<std::int64_t>(total)}));
    error.shortage = Shortage{.short_by = bytes - left, .largest_hole = left};
    return error;
  }
  SUPERNEURONS_TRY(status);
  return DeviceMemory(static_cast<std::byte*>(arena));
}

/// Device memory in use by all processes.
Result<Bytes> in_use() {
  std::size_t free = 0, total = 0;
  SUPERNEURONS_TRY(cudaMemGetInfo(&free, &total));
  return Bytes{static_cast<std::int64_t>(total - free)};
}

Result<PinnedMemory> pin(Bytes bytes) {
  void* pool = nullptr;
  if (bytes.count == 0) return PinnedMemory();
  const cudaError_t status =
      cudaHostAlloc(&pool, static_cast<std::size_t>(bytes.count), cudaHostAllocDefault);
  if (status == cudaSuccess) return PinnedMemory(static_cast<std::byte*>(pool));
  (void)cudaGetLastError();
  Error error{.code = ErrorCode::does_not_fit};
  error.message = fmt::format("cannot pin {} of host memory ({})", format_bytes(bytes),
                              cudaGetErrorString(status));
  return error;
}

}  // namespace

Result<Bytes> free_device_memory() {
  std::size_t free = 0, total = 0;
  SUPERNEURONS_TRY(cudaMemGetInfo(&free, &total));
  return Bytes{static_cast<std::int64_t>(free)};
}

Result<CudaMemory> CudaMemory::take(Bytes arena, Bytes pool) {
  int devices = 0;
  SUPERNEURONS_TRY(cudaGetDeviceCount(&devices));
  CudaMemory memory;
  memory.arena_bytes_ = arena;
  memory.pool_bytes_ = pool;
  auto before = in_use();
  if (!before) return before.error();
  memory.in_use_before_ = *before;
  auto device = take_arena(arena);
  if (!device) return device.error();
  memory.arena_ = std::move(*device);
  auto host = pin(pool);
  if (!host) return host.error();
  memory.pool_ = std::move(*host);
  auto slots = make_device_memory(kSlotBytes);
  if (!slots) return slots.error();
  memory.slots_ = std::move(*slots);
  SUPERNEURONS_TRY(cudaMemset(memory.slots_.get(), 0, kSlotBytes));
  SUPERNEURONS_TRY(cudaDeviceSynchronize());
  return memory;
}

Result<Bytes> CudaMemory::outside() const {
  const auto now = in_use();
  if (!now) return now.error();
  return std::max(*now - in_use_before_ - arena_bytes_, 0_B);
}

Status CudaMemory::check(Space space, Range range) const {
  const Bytes end = space == Space::device ? arena_bytes_ : pool_bytes_;
  if (range.offset.count >= 0 && range.bytes.count >= 0 && range.offset + range.bytes <= end)
    return Ok{};
  return Error{.code = ErrorCode::bad_usage,
               .message = fmt::format("bytes {} to {} lie outside of the {} {} taken",
                                      range.offset.count, range.offset.count + range.bytes.count,
                                      end.count, space == Space::device ? "device" : "host")};
}

Status CudaMemory::initialise(const Trace& trace, TensorId tensor, std::uint64_t seed, Space space,
                              Range range, cudaStream_t stream) {
  if (Status good = check(space, range); !good) return good;
  auto content = first_content(trace, tensor, seed);
  if (!content) return content.error();
  if (space == Space::host) {
    fill(at(space, range), range.bytes, *content);
    return Ok{};
  }
  SUPERNEURONS_TRY(launch_initialise(at(space, range), range.bytes.count, content->init,
                                     content->scale, content->key, stream));
  SUPERNEURONS_TRY(cudaStreamSynchronize(stream));
  return Ok{};
}

Result<std::uint64_t> CudaMemory::checksum(Space space, Range range, cudaStream_t stream) {
  if (Status good = check(space, range); !good) return good.error();
  if (space == Space::host) return host_checksum(at(space, range), range.bytes);
  std::uint64_t sum = 0;
  SUPERNEURONS_TRY(cudaMemsetAsync(slots(), 0, sizeof sum, stream));
  SUPERNEURONS_TRY(launch_checksum(at(space, range), range.bytes.count, slots(), stream));
  SUPERNEURONS_TRY(cudaStreamSynchronize(stream));
  SUPERNEURONS_TRY(cudaMemcpy(&sum, slots(), sizeof sum, cudaMemcpyDeviceToHost));
  return sum;
}

Status CudaMemory::read(Space space, Range range, std::byte* to) {
  if (Status good = check(space, range); !good) return good;
  SUPERNEURONS_TRY(
      cudaMemcpy(to, at(space, range), static_cast<std::size_t>(range.bytes.count),
                 space == Space::device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost));
  return Ok{};
}

Result<Staging::Slot> Staging::next(const std::vector<Fed>& inputs) {
  Piece& piece = pieces_[turn_++ % pieces_.size()];
  if (!piece.copied) {
    auto event = make_event(false);
    if (!event) return event.error();
    piece.copied = std::move(*event);
  }
  SUPERNEURONS_TRY(cudaEventSynchronize(piece.copied.get()));
  std::size_t bytes = 0;
  for (const Fed& input : inputs) bytes += input.content.size();
  if (bytes > piece.bytes) {
    auto memory = pin({static_cast<std::int64_t>(bytes)});
    if (!memory) return memory.error();
    piece.memory = std::move(*memory);
    piece.bytes = bytes;
  }
  return Slot{piece.memory.get(), piece.copied.get()};
}

Result<std::uint64_t> CudaMemory::first_broken_guard() const {
  std::uint64_t code = 0;
  SUPERNEURONS_TRY(cudaMemcpy(&code, guard_slot(), sizeof code, cudaMemcpyDeviceToHost));
  return code;
}

}  // namespace superneurons
