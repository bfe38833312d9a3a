#include "tracer/activity.h"

#include <algorithm>
#include <unordered_map>

namespace superneurons {

Nanoseconds median(std::vector<Nanoseconds> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Attribution attribute(const ActivityLog& log, int steps, std::size_t ops) {
  std::unordered_map<std::uint32_t, std::uint64_t> tag_of;
  tag_of.reserve(log.tags.size());
  for (const TagActivity& tag : log.tags) tag_of[tag.correlation] = tag.tag;

  Attribution result;
  result.steps.assign(static_cast<std::size_t>(steps), std::vector<OpActivity>(ops));
  for (const DeviceActivity& activity : log.device) {
    const auto tag = tag_of.find(activity.correlation);
    const std::uint64_t step = tag == tag_of.end() ? 0 : tag->second >> 32;
    const std::uint64_t op = tag == tag_of.end() ? 0 : tag->second & 0xffffffffU;
    const Nanoseconds busy = activity.end - activity.start;
    if (step == 0 || step > static_cast<std::uint64_t>(steps) || op >= ops) {
      ++result.orphans;
      result.orphan_ns += busy;
      continue;
    }
    OpActivity& owner = result.steps[step - 1][op];
    owner.parts.push_back(activity);
    owner.busy += busy;
    result.owned_ns += busy;
  }
  for (auto& step : result.steps) {
    for (OpActivity& op : step) {
      if (op.parts.empty()) continue;
      std::sort(op.parts.begin(), op.parts.end(),
                [](const auto& a, const auto& b) { return a.start < b.start; });
      Nanoseconds last = op.parts.front().end;
      for (const DeviceActivity& part : op.parts) last = std::max(last, part.end);
      op.span = last - op.parts.front().start;
    }
  }
  return result;
}

}  // namespace superneurons
