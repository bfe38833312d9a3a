// libsuperneurons_cupti: the CUPTI collector as a shared library with a C interface, for programs
// that are not ours: loaded by Python (python/superneurons/capture.py), by the driver through
// CUDA_INJECTION64_PATH, or by NVTX through NVTX_INJECTION64_PATH. exports.map hides all other
// symbols, since libtorch has an InitializeInjection too, and since our std:: code must not replace
// the program's.
//
// With SUPERNEURONS_ACTIVITY_LOG in the environment it records the whole run from the first call of
// the driver on; without, it leaves CUPTI alone until superneurons_trace_start().
//
// A tracer must never harm: whatever goes wrong, the program goes on untraced. No exception leaves
// an entry point.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "tracer/activity_log.h"
#include "tracer/activity_writer.h"
#include "tracer/cuda/cupti_collector.h"
#include "tracer/library/flusher.h"

#define SUPERNEURONS_API extern "C" __attribute__((visibility("default")))

// Of libcupti, in no header of it.
extern "C" int cuptiNvtxInitialize(void* get_export_table);
extern "C" int cuptiNvtxInitialize2(void* get_export_table);

namespace superneurons {
namespace {

/// One per process, as CUPTI itself; started and stopped by the entry points below. Never
/// destroyed: at the end of the program CUPTI may be gone already.
CuptiCollector* collector = nullptr;
Flusher* flusher = nullptr;
bool streams = false;  // into a file as it goes
// To record the whole run. Driver and NVTX may ask more than once, and from several threads.
std::atomic<bool> tried{false};
pid_t owner = 0;  // a fork()ed child inherits the variables above, but not CUPTI

bool recording() { return collector && owner == getpid(); }

/// "" if all went well.
std::string take(Result<std::unique_ptr<CuptiCollector>> started, bool into_file) {
  if (!started) return started.error().message;
  collector = started->release();
  owner = getpid();
  streams = into_file;
  if (into_file)
    flusher = new Flusher([] {
      if (recording()) collector->flush();
    });
  return "";
}

/// What the program was started as, without its arguments.
std::string own_command() {
  char name[4096];
  const ssize_t size = readlink("/proc/self/exe", name, sizeof name);
  return size > 0 ? std::string(name, static_cast<std::size_t>(size)) : "";
}

std::string start_to(const std::string& path) {
  return take(CuptiCollector::start_into(std::make_unique<ActivityWriter>(
                  path, ActivityHeader{getpid(), own_command(), cupti_now()})),
              true);
}

/// Ends what start_to() began.
bool finish_stream() {
  delete std::exchange(flusher, nullptr);  // waits for it
  const std::unique_ptr<CuptiCollector> last(std::exchange(collector, nullptr));
  const auto sink = last->stop_into();
  auto* writer = dynamic_cast<ActivityWriter*>(sink.get());
  return writer && writer->finish();
}

bool stop_and_write(const std::string& path) {
  const std::unique_ptr<CuptiCollector> last(std::exchange(collector, nullptr));
  auto log = last->stop();
  return log && write_activity_log(std::move(*log), path);
}

void finish_at_exit() noexcept try {
  if (!recording() || !streams) return;
  if (!finish_stream())
    std::fprintf(stderr, "superneurons: the activity log could not be written whole\n");
} catch (...) {
  std::fprintf(stderr, "superneurons: the activity log could not be written whole\n");
}

/// Whether the whole run is to be recorded, which this starts the first time it is asked.
bool record_whole_run() noexcept try {
  const char* path = std::getenv("SUPERNEURONS_ACTIVITY_LOG");
  if (!path || !*path) return false;
  if (tried.exchange(true)) return recording();
  const std::string problem = start_to(fmt::format("{}.{}", path, getpid()));
  if (problem.empty()) std::atexit(finish_at_exit);
  else std::fprintf(stderr, "superneurons: not traced: %s\n", problem.c_str());
  return recording();
} catch (...) {
  return false;
}

int report(const std::string& problem, char* error, std::size_t size) {
  if (problem.empty()) return 0;
  if (error && size > 0) std::snprintf(error, size, "%s", problem.c_str());
  return 1;
}

}  // namespace
}  // namespace superneurons

/// Starts recording device work and tags in memory. Returns 0, or 1 with a sentence in `error` (of
/// `size` bytes).
SUPERNEURONS_API int superneurons_trace_start(char* error, std::size_t size) noexcept try {
  using namespace superneurons;
  return report(take(CuptiCollector::start(), false), error, size);
} catch (...) {
  return superneurons::report("not enough memory", error, size);
}

/// Starts recording into the file `path` as it goes, in the form of traces/FORMAT.md, "Activity
/// logs": also API calls, driver allocations and NVTX ranges. superneurons_trace_stop() ends it.
SUPERNEURONS_API int superneurons_trace_start_to(const char* path, char* error,
                                                 std::size_t size) noexcept try {
  using namespace superneurons;
  return report(path && *path ? start_to(path) : "no file is named", error, size);
} catch (...) {
  return superneurons::report("not enough memory", error, size);
}

/// Device work issued by this thread until the pop belongs to `tag` (>= 0).
SUPERNEURONS_API void superneurons_tag_push(std::uint64_t tag) noexcept {
  superneurons::CuptiCollector::push_tag(tag);
}
SUPERNEURONS_API void superneurons_tag_pop() noexcept { superneurons::CuptiCollector::pop_tag(); }

/// Stops. What was recorded in memory is written to `path` (tracer/activity_log.h); what went into
/// a file gets its end record. Returns 0 if all went well.
SUPERNEURONS_API int superneurons_trace_stop(const char* path) noexcept try {
  using namespace superneurons;
  if (!recording()) return 1;
  if (streams) return finish_stream() ? 0 : 1;
  return path && stop_and_write(path) ? 0 : 1;
} catch (...) {
  return 1;
}

/// The driver calls this in a process started with CUDA_INJECTION64_PATH set to this library; it
/// records the whole run into $SUPERNEURONS_ACTIVITY_LOG.<pid>.
SUPERNEURONS_API int InitializeInjection() noexcept {
  (void)superneurons::record_whole_run();
  return 1;
}

/// NVTX calls one of these, the version that it knows, in a process started with
/// NVTX_INJECTION64_PATH set to this library, before its first range. That may be before the driver
/// comes up, and CUPTI is ours before it is told of NVTX.
SUPERNEURONS_API int InitializeInjectionNvtx(void* get_export_table) noexcept {
  if (!superneurons::record_whole_run()) return 0;
  (void)cuptiNvtxInitialize(get_export_table);
  return 1;
}
SUPERNEURONS_API int InitializeInjectionNvtx2(void* get_export_table) noexcept {
  if (!superneurons::record_whole_run()) return 0;
  (void)cuptiNvtxInitialize2(get_export_table);
  return 1;
}
