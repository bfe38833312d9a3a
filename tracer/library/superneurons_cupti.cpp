// libsuperneurons_cupti: the CUPTI collector as a shared library with a C interface, for programs
// that are not ours: loaded by Python (python/superneurons/capture.py) or by the driver through
// CUDA_INJECTION64_PATH. All other symbols are hidden, since libtorch has an InitializeInjection
// too.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unordered_map>

#include "tracer/cuda/cupti_collector.h"

#define SUPERNEURONS_API extern "C" __attribute__((visibility("default")))

namespace superneurons {
namespace {

/// One per process, as CUPTI itself; started and stopped by the entry points below.
std::unique_ptr<CuptiCollector> collector;

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) out += c;
  }
  return out + "\"";
}

/// One line per device activity in order of start, then an end record.
bool write_log(ActivityLog log, const std::string& path) {
  std::unordered_map<std::uint32_t, std::uint64_t> tag_of;
  for (const TagActivity& tag : log.tags) tag_of[tag.correlation] = tag.tag;
  std::sort(log.device.begin(), log.device.end(),
            [](const auto& a, const auto& b) { return a.start < b.start; });
  const std::string temporary = path + ".tmp";
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  if (!file) return false;
  for (const DeviceActivity& activity : log.device) {
    const auto tag = tag_of.find(activity.correlation);
    fmt::print(file,
               "{{\"tag\":{},\"name\":{},\"stream\":{},\"start\":{},\"end\":{},\"kernel\":{}}}\n",
               tag == tag_of.end() ? -1 : static_cast<std::int64_t>(tag->second),
               quoted(log.names[activity.name]), activity.stream, activity.start.count,
               activity.end.count, activity.kernel);
  }
  fmt::print(file, "{{\"r\":\"end\",\"activities\":{},\"dropped\":{}}}\n", log.device.size(),
             log.dropped);
  const bool written = std::fclose(file) == 0;
  return written && std::rename(temporary.c_str(), path.c_str()) == 0;
}

void write_at_exit() {
  const char* path = std::getenv("SUPERNEURONS_ACTIVITY_LOG");
  if (!collector || !path) return;
  auto log = collector->stop();
  collector.reset();
  if (!log || !write_log(std::move(*log), fmt::format("{}.{}", path, getpid())))
    std::fprintf(stderr, "superneurons: the activity log could not be written\n");
}

}  // namespace
}  // namespace superneurons

/// Starts recording. Returns 0, or 1 with a sentence in `error` (of `size` bytes).
SUPERNEURONS_API int superneurons_trace_start(char* error, std::size_t size) {
  auto started = superneurons::CuptiCollector::start();
  if (started) {
    superneurons::collector = std::move(*started);
    return 0;
  }
  std::snprintf(error, size, "%s", started.error().message.c_str());
  return 1;
}

/// Device work issued by this thread until the pop belongs to `tag` (>= 0).
SUPERNEURONS_API void superneurons_tag_push(std::uint64_t tag) {
  superneurons::CuptiCollector::push_tag(tag);
}
SUPERNEURONS_API void superneurons_tag_pop() { superneurons::CuptiCollector::pop_tag(); }

/// Stops and writes the log as JSON Lines. Returns 0 if all went well.
SUPERNEURONS_API int superneurons_trace_stop(const char* path) {
  if (!superneurons::collector) return 1;
  auto log = superneurons::collector->stop();
  superneurons::collector.reset();
  return log && superneurons::write_log(std::move(*log), path) ? 0 : 1;
}

/// The driver calls this in a process started with CUDA_INJECTION64_PATH set to this library; it
/// records the whole run into $SUPERNEURONS_ACTIVITY_LOG.<pid>. A tracer must never harm: on any
/// error the program goes on untraced.
SUPERNEURONS_API int InitializeInjection() {
  if (superneurons::collector || !std::getenv("SUPERNEURONS_ACTIVITY_LOG")) return 1;
  char error[512];
  if (superneurons_trace_start(error, sizeof error) != 0)
    std::fprintf(stderr, "superneurons: not traced: %s\n", error);
  else std::atexit(superneurons::write_at_exit);
  return 1;
}
