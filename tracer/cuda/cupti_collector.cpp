#include "tracer/cuda/cupti_collector.h"

#include <cuda.h>
#include <cupti.h>
#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

namespace superneurons {
namespace {

// CUPTI fills the newest layout of the toolkit that it belongs to; structures only grow at the end,
// so the layout of the toolkit we are compiled against is right whenever the loaded CUPTI is as
// new.
#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
#else
using KernelRecord = CUpti_ActivityKernel9;
#endif
#if CUPTI_API_VERSION >= 26
using CopyRecord = CUpti_ActivityMemcpy6;
#else
using CopyRecord = CUpti_ActivityMemcpy5;
#endif
using SetRecord = CUpti_ActivityMemset4;

constexpr std::size_t kBufferBytes = 8U << 20;
constexpr std::size_t kBufferAlignment = 8;

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};

/// Where buffer callbacks put what they get. Process-wide, because CUPTI is.
struct Sink {
  std::mutex mutex;
  ActivityLog log;
  std::unordered_map<std::string, std::uint32_t> name_ids;
};
std::atomic<Sink*> sink{nullptr};

std::uint32_t intern(Sink& to, const char* name) {
  const std::string text = name ? name : "unknown";
  const auto [entry, added] =
      to.name_ids.emplace(text, static_cast<std::uint32_t>(to.log.names.size()));
  if (added) to.log.names.push_back(text);
  return entry->second;
}

template <class Record>
void add_device(Sink& to, const Record& record, const char* name, bool kernel) {
  to.log.device.push_back({intern(to, name),
                           record.correlationId,
                           record.streamId,
                           {static_cast<std::int64_t>(record.start)},
                           {static_cast<std::int64_t>(record.end)},
                           kernel});
}

void decode(Sink& to, const CUpti_Activity* record) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = *reinterpret_cast<const KernelRecord*>(record);
      return add_device(to, kernel, kernel.name, true);
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      return add_device(to, *reinterpret_cast<const CopyRecord*>(record), "memcpy", false);
    case CUPTI_ACTIVITY_KIND_MEMSET:
      return add_device(to, *reinterpret_cast<const SetRecord*>(record), "memset", false);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& tag = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
      if (tag.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
        to.log.tags.push_back({tag.correlationId, tag.externalId});
      return;
    }
    default:
      return;
  }
}

void CUPTIAPI buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *size = *buffer ? kBufferBytes : 0;
  *max_records = 0;
}

/// What memory does not suffice for counts as dropped: CUPTI's thread must not see an exception.
void decode_all(Sink& to, std::uint8_t* buffer, std::size_t valid) noexcept {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    try {
      decode(to, record);
    } catch (...) {
      ++to.log.dropped;
    }
  }
}

void CUPTIAPI buffer_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                               std::size_t, std::size_t valid) {
  std::size_t dropped = 0;
  cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
  if (Sink* to = sink.load()) {
    const std::lock_guard lock(to->mutex);
    to->log.dropped += static_cast<std::int64_t>(dropped);
    decode_all(*to, buffer, valid);
  }
  std::free(buffer);
}

Error cupti_error(const char* call, CUptiResult result) {
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  const bool taken = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  return {.code = ErrorCode::device,
          .message = fmt::format("{} failed: {}{}", call, text ? text : "unknown",
                                 taken ? " (another tool, e.g. torch.profiler or nsys, traces this "
                                         "process: trace without it)"
                                       : "")};
}

}  // namespace

Result<std::unique_ptr<CuptiCollector>> CuptiCollector::start() {
  Sink* expected = nullptr;
  auto fresh = std::make_unique<Sink>();
  if (!sink.compare_exchange_strong(expected, fresh.get()))
    return Error{.code = ErrorCode::device, .message = "a trace is already being recorded"};
  fresh.release();
  auto collector = std::unique_ptr<CuptiCollector>(new CuptiCollector());
  collector->running_ = true;
  std::size_t device_buffer = 16U << 20;
  std::size_t size = sizeof(device_buffer);
  cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &size, &device_buffer);
  if (const auto result = cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed))
    return cupti_error("cuptiActivityRegisterCallbacks", result);
  for (const CUpti_ActivityKind kind : kKinds)
    if (const auto result = cuptiActivityEnable(kind))
      return cupti_error("cuptiActivityEnable", result);
  return collector;
}

void CuptiCollector::push_tag(std::uint64_t tag) {
  cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, tag);
}

void CuptiCollector::pop_tag() {
  std::uint64_t last = 0;
  cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

Result<ActivityLog> CuptiCollector::stop() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  for (const CUpti_ActivityKind kind : kKinds) cuptiActivityDisable(kind);
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  running_ = false;
  const std::unique_ptr<Sink> last(sink.exchange(nullptr));
  if (!last) return Error{.code = ErrorCode::device, .message = "no trace was being recorded"};
  const std::lock_guard lock(last->mutex);
  return std::move(last->log);
}

CuptiCollector::~CuptiCollector() {
  if (running_) (void)stop();
}

std::string cupti_version() {
  std::uint32_t version = 0;
  cuptiGetVersion(&version);
  return fmt::format("CUPTI API {} (compiled against {})", version, CUPTI_API_VERSION);
}

}  // namespace superneurons
