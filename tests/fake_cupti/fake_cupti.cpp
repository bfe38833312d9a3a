#include "tests/fake_cupti/fake_cupti.h"

#include <cupti.h>

#include <cstring>
#include <mutex>

namespace {

#if CUPTI_API_VERSION >= 130000
using KernelRecord = CUpti_ActivityKernel10;
#else
using KernelRecord = CUpti_ActivityKernel9;
#endif

/// One buffer at a time, of kernels only.
struct Fake {
  std::mutex mutex;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;
  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, used = 0;
};
Fake& fake() {
  static Fake* const only = new Fake;
  return *only;
}

/// Hands the buffer over; under the lock.
void hand_over(Fake& from) {
  if (from.buffer == nullptr) return;
  std::uint8_t* const full = from.buffer;
  from.buffer = nullptr;
  from.complete(nullptr, 0, full, from.size, from.used);
}

}  // namespace

namespace superneurons {

void fake_kernel(std::uint32_t call, std::int64_t start, std::int64_t end) {
  Fake& to = fake();
  const std::lock_guard lock(to.mutex);
  if (to.buffer != nullptr && to.size - to.used < sizeof(KernelRecord)) hand_over(to);
  if (to.buffer == nullptr) {
    std::size_t most = 0;
    to.request(&to.buffer, &to.size, &most);
    to.used = 0;
  }
  KernelRecord record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.correlationId = call;
  record.start = static_cast<std::uint64_t>(start);
  record.end = static_cast<std::uint64_t>(end);
  record.name = "kernel";
  std::memcpy(to.buffer + to.used, &record, sizeof record);
  to.used += sizeof record;
}

}  // namespace superneurons

extern "C" {

CUptiResult CUPTIAPI cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                                    CUpti_BuffersCallbackCompleteFunc complete) {
  fake().request = request;
  fake().complete = complete;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityFlushAll(std::uint32_t) {
  const std::lock_guard lock(fake().mutex);
  hand_over(fake());
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid,
                                                CUpti_Activity** record) {
  auto* const at = reinterpret_cast<std::uint8_t*>(*record);
  std::uint8_t* const next = at == nullptr ? buffer : at + sizeof(KernelRecord);
  if (next + sizeof(KernelRecord) > buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiGetTimestamp(std::uint64_t* timestamp) {
  *timestamp = 1000;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&fake());
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t,
                                                       std::size_t* dropped) {
  *dropped = 0;
  return CUPTI_SUCCESS;
}

CUptiResult CUPTIAPI cuptiUnsubscribe(CUpti_SubscriberHandle) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityEnable(CUpti_ActivityKind) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivityDisable(CUpti_ActivityKind) { return CUPTI_SUCCESS; }
CUptiResult CUPTIAPI cuptiActivitySetAttribute(CUpti_ActivityAttribute, std::size_t*, void*) {
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiEnableCallback(std::uint32_t, CUpti_SubscriberHandle,
                                         CUpti_CallbackDomain, CUpti_CallbackId) {
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiGetCallbackName(CUpti_CallbackDomain, std::uint32_t, const char** name) {
  *name = "cuLaunchKernel";
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiGetResultString(CUptiResult, const char** text) {
  *text = "none";
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiGetVersion(std::uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind,
                                                            std::uint64_t) {
  return CUPTI_SUCCESS;
}
CUptiResult CUPTIAPI cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind,
                                                           std::uint64_t*) {
  return CUPTI_SUCCESS;
}
int cuptiNvtxInitialize(void*) { return 1; }
int cuptiNvtxInitialize2(void*) { return 1; }
}
