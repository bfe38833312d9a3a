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

std::vector<Nanoseconds> seen_spans(const Attribution& attribution, std::size_t op,
                                    int first_step) {
  std::vector<Nanoseconds> spans;
  for (auto step = static_cast<std::size_t>(first_step); step < attribution.steps.size(); ++step)
    if (const OpActivity& seen = attribution.steps[step][op]; !seen.parts.empty())
      spans.push_back(seen.span);
  return spans;
}

Losses& Losses::operator+=(const Losses& other) {
  dropped += other.dropped;
  orphans += other.orphans;
  orphan_ns += other.orphan_ns;
  incomplete_ops += other.incomplete_ops;
  return *this;
}

Losses losses_of(const ActivityLog& log, const Attribution& attribution, int first_step) {
  Losses losses{log.dropped, attribution.orphans, attribution.orphan_ns, 0};
  const std::size_t steps = attribution.steps.size() - static_cast<std::size_t>(first_step);
  const std::size_t ops = attribution.steps.empty() ? 0 : attribution.steps.front().size();
  for (std::size_t op = 0; op < ops; ++op) {
    const std::size_t seen = seen_spans(attribution, op, first_step).size();
    if (seen > 0 && seen < steps) ++losses.incomplete_ops;
  }
  return losses;
}

std::string describe(const Losses& losses) {
  std::string text;
  const auto add = [&text](const std::string& what) { text += (text.empty() ? "" : ", ") + what; };
  if (losses.dropped > 0) add(std::to_string(losses.dropped) + " records dropped");
  if (losses.orphans > 0)
    add(std::to_string(losses.orphans) + " device activities (" +
        std::to_string(losses.orphan_ns.count) + " ns) of no op");
  if (losses.incomplete_ops > 0)
    add(std::to_string(losses.incomplete_ops) + " ops not seen in every training step");
  return text.empty() ? "no records lost" : text;
}

}  // namespace superneurons
