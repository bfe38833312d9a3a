#include "tracer/cuda/cupti_decode.h"

#include <cuda.h>
#include <cupti.h>

#include <string_view>

namespace superneurons {
namespace {

// CUPTI fills the newest layout of the toolkit that it belongs to. Within a major version, which
// the name of the library tells (libcupti.so.13), structures only grow at the end, and no field is
// read here that its first toolkit lacks: so the loaded CUPTI may be older or newer than the one
// that we are compiled against.
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
#if CUPTI_API_VERSION >= 24
using MemoryRecord = CUpti_ActivityMemory4;
#else
using MemoryRecord = CUpti_ActivityMemory3;
#endif
using PeerCopyRecord = CUpti_ActivityMemcpyPtoP4;
using SetRecord = CUpti_ActivityMemset4;

std::string_view text(const char* name) { return name ? name : "unknown"; }

template <class Record>
SeenWork work_of(const Record& record, DeviceWork kind, std::uint64_t bytes = 0) {
  return {kind,
          record.correlationId,
          record.streamId,
          static_cast<std::int64_t>(record.start),
          static_cast<std::int64_t>(record.end),
          static_cast<std::int64_t>(bytes)};
}

std::string_view copy_name(std::uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
      return "memcpy HtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
      return "memcpy DtoH";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD:
      return "memcpy DtoD";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "memcpy PtoP";
    default:
      return "memcpy";
  }
}

/// Names of API calls, of which a log has those that put work on the device, allocate or wait.
struct Api {
  const char* name = nullptr;
  bool known = false, wanted = false;
};

bool is_wanted(std::string_view name) {
  for (const char* part : {"Launch", "Memcpy", "Memset", "Synchronize", "Malloc", "MemAlloc",
                           "Free", "MemMap", "MemUnmap"})
    if (name.find(part) != std::string_view::npos) return true;
  return false;
}

/// By domain and number. Only read and written under the collector's lock.
const Api& api(CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  constexpr std::size_t kMost = 2048;
  static Api all[2][kMost];
  static const Api other;
  if (id >= kMost) return other;
  Api& one = all[domain == CUPTI_CB_DOMAIN_RUNTIME_API ? 1 : 0][id];
  if (!one.known) {
    if (cuptiGetCallbackName(domain, id, &one.name) != CUPTI_SUCCESS) one.name = nullptr;
    one.wanted = one.name && is_wanted(one.name);
    one.known = true;
  }
  return one;
}

/// "cudaLaunchKernel_v7000" and "cuMemcpyDtoHAsync_v2" without the version.
std::string_view without_version(std::string_view name) {
  const auto mark = name.rfind("_v");
  if (mark == std::string_view::npos || mark + 2 == name.size()) return name;
  return name.find_first_not_of("0123456789", mark + 2) == std::string_view::npos
             ? name.substr(0, mark)
             : name;
}

void decode_call(const CUpti_ActivityAPI& record, CUpti_CallbackDomain domain, ActivitySink& sink) {
  const Api& found = api(domain, record.cbid);
  if (!found.wanted) return;
  sink.call({record.correlationId, record.threadId, static_cast<std::int64_t>(record.start),
             static_cast<std::int64_t>(record.end)},
            without_version(found.name));
}

void decode_memory(const MemoryRecord& record, ActivitySink& sink) {
  const bool device = record.memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_DEVICE ||
                      record.memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_ARRAY ||
                      record.memoryKind == CUPTI_ACTIVITY_MEMORY_KIND_MANAGED;
  const bool allocates =
      record.memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
  if (!device ||
      (!allocates && record.memoryOperationType != CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE))
    return;
  sink.memory({allocates, record.address, static_cast<std::int64_t>(record.bytes),
               static_cast<std::int64_t>(record.timestamp)});
}

void decode_mark(const CUpti_ActivityMarker2& record, ActivitySink& sink) {
  const bool begins = (record.flags & CUPTI_ACTIVITY_FLAG_MARKER_START) != 0;
  if (!begins && (record.flags & CUPTI_ACTIVITY_FLAG_MARKER_END) == 0) return;
  const std::uint32_t thread =
      record.objectKind == CUPTI_ACTIVITY_OBJECT_THREAD ? record.objectId.pt.threadId : 0;
  sink.mark({record.id, thread, begins, static_cast<std::int64_t>(record.timestamp)},
            text(record.name));
}

void decode(const CUpti_Activity* record, ActivitySink& sink) {
  switch (record->kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = *reinterpret_cast<const KernelRecord*>(record);
      return sink.work(work_of(kernel, DeviceWork::kernel), text(kernel.name));
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = *reinterpret_cast<const CopyRecord*>(record);
      return sink.work(work_of(copy, DeviceWork::copy, copy.bytes), copy_name(copy.copyKind));
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY2: {
      const auto& copy = *reinterpret_cast<const PeerCopyRecord*>(record);
      return sink.work(work_of(copy, DeviceWork::copy, copy.bytes), copy_name(copy.copyKind));
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& set = *reinterpret_cast<const SetRecord*>(record);
      return sink.work(work_of(set, DeviceWork::set, set.bytes), "memset");
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& tag = *reinterpret_cast<const CUpti_ActivityExternalCorrelation*>(record);
      if (tag.externalKind == CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0)
        sink.tag({tag.correlationId, tag.externalId});
      return;
    }
    case CUPTI_ACTIVITY_KIND_RUNTIME:
      return decode_call(*reinterpret_cast<const CUpti_ActivityAPI*>(record),
                         CUPTI_CB_DOMAIN_RUNTIME_API, sink);
    case CUPTI_ACTIVITY_KIND_DRIVER:
      return decode_call(*reinterpret_cast<const CUpti_ActivityAPI*>(record),
                         CUPTI_CB_DOMAIN_DRIVER_API, sink);
    case CUPTI_ACTIVITY_KIND_MEMORY2:
      return decode_memory(*reinterpret_cast<const MemoryRecord*>(record), sink);
    case CUPTI_ACTIVITY_KIND_MARKER:
      return decode_mark(*reinterpret_cast<const CUpti_ActivityMarker2*>(record), sink);
    default:
      return;
  }
}

}  // namespace

void decode_activities(std::uint8_t* buffer, std::size_t valid, ActivitySink& sink) noexcept {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) decode(record, sink);
  sink.flush();
}

}  // namespace superneurons
