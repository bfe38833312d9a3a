// libsuperneurons_cupti: the CUPTI collector as a shared library with a C interface, for programs
// that are not ours: loaded by Python (python/superneurons/capture.py) or by the driver through
// CUDA_INJECTION64_PATH. exports.map hides all other symbols, since libtorch has an
// InitializeInjection too, and since our std:: code must not replace the program's.
//
// A tracer must never harm: whatever goes wrong, the program goes on untraced. No exception leaves
// an entry point.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "tracer/activity_log.h"
#include "tracer/cuda/cupti_collector.h"

#define SUPERNEURONS_API extern "C" __attribute__((visibility("default")))

namespace superneurons {
namespace {

/// One per process, as CUPTI itself; started and stopped by the entry points below. Never
/// destroyed: at the end of the program CUPTI may be gone already.
CuptiCollector* collector = nullptr;
pid_t owner = 0;  // a fork()ed child inherits the variables above, but not CUPTI

bool recording() { return collector && owner == getpid(); }

bool stop_and_write(const std::string& path) {
  const std::unique_ptr<CuptiCollector> last(std::exchange(collector, nullptr));
  auto log = last->stop();
  return log && write_activity_log(std::move(*log), path);
}

void write_at_exit() noexcept try {
  const char* path = std::getenv("SUPERNEURONS_ACTIVITY_LOG");
  if (!recording() || !path) return;
  if (!stop_and_write(fmt::format("{}.{}", path, getpid())))
    std::fprintf(stderr, "superneurons: the activity log could not be written\n");
} catch (...) {
  std::fprintf(stderr, "superneurons: the activity log could not be written\n");
}

}  // namespace
}  // namespace superneurons

/// Starts recording. Returns 0, or 1 with a sentence in `error` (of `size` bytes).
SUPERNEURONS_API int superneurons_trace_start(char* error, std::size_t size) noexcept try {
  auto started = superneurons::CuptiCollector::start();
  if (started) {
    superneurons::collector = started->release();
    superneurons::owner = getpid();
    return 0;
  }
  std::snprintf(error, size, "%s", started.error().message.c_str());
  return 1;
} catch (...) {
  std::snprintf(error, size, "not enough memory");
  return 1;
}

/// Device work issued by this thread until the pop belongs to `tag` (>= 0).
SUPERNEURONS_API void superneurons_tag_push(std::uint64_t tag) noexcept {
  superneurons::CuptiCollector::push_tag(tag);
}
SUPERNEURONS_API void superneurons_tag_pop() noexcept { superneurons::CuptiCollector::pop_tag(); }

/// Stops and writes the log as JSON Lines (tracer/activity_log.h). Returns 0 if all went well.
SUPERNEURONS_API int superneurons_trace_stop(const char* path) noexcept try {
  if (!superneurons::recording()) return 1;
  return superneurons::stop_and_write(path) ? 0 : 1;
} catch (...) {
  return 1;
}

/// The driver calls this in a process started with CUDA_INJECTION64_PATH set to this library; it
/// records the whole run into $SUPERNEURONS_ACTIVITY_LOG.<pid>.
SUPERNEURONS_API int InitializeInjection() noexcept {
  if (superneurons::collector || !std::getenv("SUPERNEURONS_ACTIVITY_LOG")) return 1;
  char error[512] = "";
  if (superneurons_trace_start(error, sizeof error) != 0)
    std::fprintf(stderr, "superneurons: not traced: %s\n", error);
  else std::atexit(superneurons::write_at_exit);
  return 1;
}
