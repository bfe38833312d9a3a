#include "simulator/cache_stats.h"

#include <algorithm>
#include <vector>

namespace superneurons {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

struct Cached {
  bool at_home = false;
  bool fetched = false;  // and not used since
  bool copied = false;   // to the host, since it was last written or brought
  bool left = false;     // freed; it was an eviction if it comes back
  bool clean = false;    // when it left, the host had a copy from before it was last brought
};

}  // namespace

CacheStats cache_stats(const Trace& trace, const Plan& plan) {
  CacheStats stats;
  std::vector<Cached> tensors(trace.tensors.size());
  for (std::size_t i = 0; i < plan.begin.size(); ++i)
    if (plan.begin[i].place == Place::device)
      tensors[trace.carry[i].start.index].at_home = tensors[trace.carry[i].end.index].at_home =
          true;
  std::vector<bool> ran(trace.ops.size(), false);
  for (const PlanStep& step : plan.steps) {
    if (step.kind != StepKind::run) {
      Cached& cached = tensors[step.subject];
      if (step.kind == StepKind::offload) cached.copied = true;
      if (step.kind == StepKind::free) {
        cached.left = true;
        cached.clean = !cached.copied;
      }
      if (step.kind != StepKind::prefetch || cached.at_home) continue;
      stats.evictions += cached.left ? 1 : 0;
      stats.clean_evictions += cached.left && cached.clean ? 1 : 0;
      cached = {.fetched = true};
      continue;
    }
    const Op& op = trace[step.op()];
    const bool rerun = ran[step.subject];
    ran[step.subject] = true;
    for (const Access& read : op.reads) {
      Cached& cached = tensors[read.tensor.index];
      if (cached.at_home || (rerun && contains(op.once, read.tensor))) continue;
      ++(cached.fetched ? stats.misses : stats.hits);
      cached.fetched = false;
    }
    for (const Access& write : op.writes) {
      Cached& cached = tensors[write.tensor.index];
      cached.copied = cached.left = cached.fetched = false;
    }
  }
  return stats;
}

}  // namespace superneurons
