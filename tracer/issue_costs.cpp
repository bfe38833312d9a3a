#include "tracer/issue_costs.h"

#include <algorithm>
#include <vector>

#include "networks/network.h"
#include "tracer/activity.h"
#include "tracer/record.h"

namespace superneurons {

Result<std::map<std::string, IssueCost>> measure_issue_costs(bool on_cuda,
                                                             const std::atomic<bool>* stop) {
  const auto network = find_network("small_cnn");
  if (!network) return network.error();
  auto lowered = lower(*network, {.batch = 1});
  if (!lowered) return lowered.error();
  const auto trace = record(*std::move(lowered), {.on_cuda = on_cuda,
                                                  .traced_steps = 3,
                                                  .untraced_steps = 40,
                                                  .choices = false,
                                                  .stop = stop});
  if (!trace) return trace.error();
  std::map<std::string, std::vector<Nanoseconds>> times;
  std::map<std::string, IssueCost> costs;
  for (const Op& op : trace->ops) {
    times[op.kind].push_back(op.host_ns);
    const auto kernels = std::max<std::int64_t>(static_cast<std::int64_t>(op.kernels.size()), 1);
    IssueCost& cost = costs[op.kind];
    cost.kernels = std::max(cost.kernels, kernels);
  }
  for (auto& [kind, cost] : costs) cost.ns = median(std::move(times[kind]));
  return costs;
}

}  // namespace superneurons
