// CUPTI without a driver: what the injected tracer calls of it, for tests where there is no GPU.
#pragma once

#include <cstdint>

namespace superneurons {

/// The device has done a kernel: its record waits in CUPTI's buffer until that is full, or until
/// somebody flushes. From any thread.
void fake_kernel(std::uint32_t call, std::int64_t start, std::int64_t end);

}  // namespace superneurons
