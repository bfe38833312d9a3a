#include "tracer/cuda/cupti_collector.h"

#include <cuda.h>
#include <cupti.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "tracer/cuda/cupti_decode.h"

#if CUPTI_API_VERSION >= 130000
#pragma weak cuptiSubscribe_v2  // the CUPTI that a process has loaded may be an older one
#endif

namespace superneurons {
namespace {

constexpr std::size_t kBufferBytes = 8U << 20;
// Of a whole program what a hard end loses should be little.
constexpr std::size_t kStreamedBufferBytes = 1U << 20;
constexpr std::size_t kBufferAlignment = 8;

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
constexpr CUpti_ActivityKind kMoreKinds[] = {
    CUPTI_ACTIVITY_KIND_MEMCPY2, CUPTI_ACTIVITY_KIND_MEMORY2, CUPTI_ACTIVITY_KIND_MARKER};

/// Keeps what our own recordings want.
class MemorySink final : public ActivitySink {
 public:
  ActivityLog log;

  void work(const SeenWork& work, std::string_view name) noexcept override {
    if (is_timeless(work)) return dropped(1);
    attempt([&] {
      log.device.push_back({intern(name),
                            work.call,
                            work.stream,
                            {work.start},
                            {work.end},
                            work.kind == DeviceWork::kernel});
    });
  }
  void tag(const TagActivity& tag) noexcept override {
    attempt([&] { log.tags.push_back(tag); });
  }
  void call(const SeenCall&, std::string_view) noexcept override {}
  void memory(const SeenMemory&) noexcept override {}
  void mark(const SeenMark&, std::string_view) noexcept override {}
  void dropped(std::int64_t records) noexcept override { log.dropped += records; }
  void flush() noexcept override {}

 private:
  /// What memory does not suffice for counts as dropped: CUPTI's thread must not see an exception.
  template <class Work>
  void attempt(const Work& work) noexcept {
    try {
      work();
    } catch (...) {
      ++log.dropped;
    }
  }
  std::uint32_t intern(std::string_view name) {
    key_ = name.substr(0, 7) == "memcpy " ? "memcpy" : name;
    const auto [entry, added] =
        name_ids_.emplace(key_, static_cast<std::uint32_t>(log.names.size()));
    if (added) log.names.push_back(key_);
    return entry->second;
  }
  std::unordered_map<std::string, std::uint32_t> name_ids_;
  std::string key_;
};

/// Where callbacks put what they get. Process-wide, because CUPTI is, and never destroyed, because
/// CUPTI's threads may outlive main().
struct Session {
  std::mutex mutex;
  std::unique_ptr<ActivitySink> sink;  // none: nothing is recorded
  CUpti_SubscriberHandle subscriber{};
  std::atomic<std::size_t> buffer_bytes{kBufferBytes};
  std::atomic<pid_t> process{0};  // that records
};
Session& session() {
  static Session* const only = new Session;
  return *only;
}

/// A fork()ed child inherits CUPTI with all it holds, but not its threads nor the lock's owner: its
/// records are not of this log, whose file it shares.
bool in_a_child() { return session().process != getpid(); }

void CUPTIAPI buffer_requested(std::uint8_t** buffer, std::size_t* size, std::size_t* max_records) {
  const std::size_t bytes = session().buffer_bytes;
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, bytes));
  *size = *buffer ? bytes : 0;
  *max_records = 0;
}

void CUPTIAPI buffer_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                               std::size_t, std::size_t valid) {
  if (in_a_child()) return std::free(buffer);
  // Not under the lock: CUPTI takes its own for it, and may hold that while it asks for a buffer.
  std::size_t dropped = 0;
  cuptiActivityGetNumDroppedRecords(context, stream, &dropped);
  {
    const std::lock_guard lock(session().mutex);
    if (ActivitySink* to = session().sink.get()) {
      if (dropped > 0) to->dropped(static_cast<std::int64_t>(dropped));
      decode_activities(buffer, valid, *to);
    }
  }
  std::free(buffer);
}

constexpr std::pair<CUpti_CallbackDomain, CUpti_CallbackId> kCalls[] = {
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemMap},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuMemUnmap},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2},
    {CUPTI_CB_DOMAIN_DRIVER_API, CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2},
    {CUPTI_CB_DOMAIN_RUNTIME_API, CUPTI_RUNTIME_TRACE_CBID_cudaDeviceReset_v3020}};

bool ends_context(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  return domain == CUPTI_CB_DOMAIN_RUNTIME_API || id == CUPTI_DRIVER_TRACE_CBID_cuCtxDestroy_v2 ||
         id == CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxReset_v2;
}

/// Before and after kCalls. Memory that is mapped piece by piece (cuMemCreate, as expandable
/// segments do) has no record of its own; and with a context go the records that nobody has
/// fetched.
void CUPTIAPI on_call(void*, CUpti_CallbackDomain domain, CUpti_CallbackId id, const void* data) {
  if (domain != CUPTI_CB_DOMAIN_DRIVER_API && domain != CUPTI_CB_DOMAIN_RUNTIME_API) return;
  if (in_a_child()) return;
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (ends_context(domain, id)) {
    if (call.callbackSite == CUPTI_API_ENTER) cuptiActivityFlushAll(0);
    return;
  }
  if (call.callbackSite != CUPTI_API_EXIT || !call.functionReturnValue ||
      *static_cast<const CUresult*>(call.functionReturnValue) != CUDA_SUCCESS)
    return;
  SeenMemory seen{.at = cupti_now()};
  if (id == CUPTI_DRIVER_TRACE_CBID_cuMemMap) {
    const auto& map = *static_cast<const cuMemMap_params*>(call.functionParams);
    seen.address = map.ptr;
    seen.bytes = static_cast<std::int64_t>(map.size);
  } else if (id == CUPTI_DRIVER_TRACE_CBID_cuMemUnmap) {
    const auto& unmap = *static_cast<const cuMemUnmap_params*>(call.functionParams);
    seen = {false, unmap.ptr, static_cast<std::int64_t>(unmap.size), seen.at};
  } else {
    return;
  }
  const std::lock_guard lock(session().mutex);
  if (ActivitySink* to = session().sink.get()) to->memory(seen);
}

Error cupti_error(const char* call, CUptiResult result, const std::string& holder = "") {
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED)
    return {.code = ErrorCode::device,
            .message = fmt::format("{} traces this process already, and CUPTI serves one tool at "
                                   "a time (would be without torch.profiler, nsys or ncu)",
                                   holder.empty() ? "another tool" : holder)};
  return {.code = ErrorCode::device,
          .message = fmt::format("{} failed: {}", call, text ? text : "unknown")};
}

/// Who has CUPTI, where it tells.
std::string holder_of_cupti() {
#if CUPTI_API_VERSION >= 130000
  char holder[128] = "";
  CUpti_SubscriberHandle none{};
  CUpti_SubscriberParams parameters{};
  parameters.structSize = CUpti_SubscriberParams_STRUCT_SIZE;
  parameters.subscriberName = "superneurons";
  parameters.oldSubscriberName = holder;
  parameters.oldSubscriberSize = sizeof holder - 1;
  if (cuptiSubscribe_v2 && cuptiSubscribe_v2(&none, on_call, nullptr, &parameters) == CUPTI_SUCCESS)
    cuptiUnsubscribe(none);  // it is gone meanwhile
  return holder;
#else
  return "";
#endif
}

Status subscribe(Session& to) {
  // Not by cuptiSubscribe_v2: a process that has used it may have no other tool of the first kind.
  const auto result = cuptiSubscribe(&to.subscriber, on_call, nullptr);
  if (result == CUPTI_SUCCESS) return Ok{};
  to.subscriber = {};
  const bool taken = result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  return cupti_error("cuptiSubscribe", result, taken ? holder_of_cupti() : "");
}

Status enable(Session& to, bool whole_program) {
  if (Status status = subscribe(to); !status) return status;
  std::size_t device_buffer = 16U << 20;
  std::size_t size = sizeof(device_buffer);
  cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, &size, &device_buffer);
  if (const auto result = cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed))
    return cupti_error("cuptiActivityRegisterCallbacks", result);
  for (const CUpti_ActivityKind kind : kKinds)
    if (const auto result = cuptiActivityEnable(kind))
      return cupti_error("cuptiActivityEnable", result);
  if (!whole_program) return Ok{};
  // A CUPTI or a device without one of these still tells the rest.
  for (const CUpti_ActivityKind kind : kMoreKinds) (void)cuptiActivityEnable(kind);
  for (const auto& [domain, id] : kCalls) (void)cuptiEnableCallback(1, to.subscriber, domain, id);
  return Ok{};
}

void disable(bool whole_program) {
  for (const CUpti_ActivityKind kind : kKinds) cuptiActivityDisable(kind);
  if (!whole_program) return;
  for (const CUpti_ActivityKind kind : kMoreKinds) cuptiActivityDisable(kind);
}

}  // namespace

Result<std::unique_ptr<CuptiCollector>> CuptiCollector::start() {
  auto collector = start_into(std::make_unique<MemorySink>());
  return collector;
}

Result<std::unique_ptr<CuptiCollector>> CuptiCollector::start_into(
    std::unique_ptr<ActivitySink> sink) {
  const bool whole_program = !dynamic_cast<MemorySink*>(sink.get());
  Session& to = session();
  {
    const std::lock_guard lock(to.mutex);
    if (to.sink)
      return Error{.code = ErrorCode::device, .message = "a trace is already being recorded"};
    to.sink = std::move(sink);
  }
  to.process = getpid();
  to.buffer_bytes = whole_program ? kStreamedBufferBytes : kBufferBytes;
  auto collector = std::unique_ptr<CuptiCollector>(new CuptiCollector());
  collector->whole_program_ = whole_program;
  collector->running_ = true;
  if (Status status = enable(to, whole_program); !status) return status.error();
  return collector;
}

void CuptiCollector::push_tag(std::uint64_t tag) {
  cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, tag);
}

void CuptiCollector::pop_tag() {
  std::uint64_t last = 0;
  cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

void CuptiCollector::flush() { cuptiActivityFlushAll(0); }

std::unique_ptr<ActivitySink> CuptiCollector::stop_into() {
  running_ = false;
  Session& from = session();
  if (from.subscriber) {  // else CUPTI is another's, which is left alone
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    disable(whole_program_);
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    cuptiUnsubscribe(std::exchange(from.subscriber, nullptr));
  }
  const std::lock_guard lock(from.mutex);
  return std::move(from.sink);
}

Result<ActivityLog> CuptiCollector::stop() {
  const std::unique_ptr<ActivitySink> sink = stop_into();
  auto* memory = dynamic_cast<MemorySink*>(sink.get());
  if (!memory) return Error{.code = ErrorCode::device, .message = "no trace was being recorded"};
  return std::move(memory->log);
}

CuptiCollector::~CuptiCollector() {
  if (running_) (void)stop_into();
}

std::int64_t cupti_now() {
  std::uint64_t now = 0;
  return cuptiGetTimestamp(&now) == CUPTI_SUCCESS ? static_cast<std::int64_t>(now) : 0;
}

std::string cupti_version() {
  std::uint32_t version = 0;
  cuptiGetVersion(&version);
  return fmt::format("CUPTI API {} (compiled against {})", version, CUPTI_API_VERSION);
}

}  // namespace superneurons
