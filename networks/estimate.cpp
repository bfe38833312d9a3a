#include "networks/network.h"
#include "networks/roofline.h"

namespace superneurons {

void estimate_durations(Trace& trace, const DeviceProfile& profile) {
  for (Op& op : trace.ops)
    for (Choice& choice : op.choices) choice.ns = roofline_time(op, choice, profile);
  trace.capabilities[static_cast<std::size_t>(Fact::durations)] = Capability::inferred;
  trace.device.clear();  // measured on none
  trace.origin = "cost model of " + profile.name;
  if (!profile.device.empty()) trace.origin += ", " + profile.device;
}

}  // namespace superneurons
