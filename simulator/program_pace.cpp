#include "simulator/program_pace.h"

#include <algorithm>

namespace superneurons {

ProgramPace program_pace(const Trace& trace, const DeviceProfile& profile) {
  ProgramPace pace;
  double device = 0;
  const auto gap = static_cast<double>(std::max<std::int64_t>(profile.gap_ns.count, 0));
  for (std::size_t i = 0; i < trace.ops.size(); ++i) {
    const Op& op = trace.ops[i];
    const bool joined =
        i > 0 && op.launch_group >= 0 && trace.ops[i - 1].launch_group == op.launch_group;
    pace.joined.push_back(joined);
    device += static_cast<double>(op.choices[op.recorded].ns.count) + (joined ? 0 : gap);
  }
  const auto step = static_cast<double>(trace.step_ns_untraced.count);
  if (step > 0 && device > step) pace.device = step / device;
  return pace;
}

}  // namespace superneurons
