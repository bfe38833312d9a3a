#include <fmt/core.h>

#include <cmath>

#include "networks/lowerings.h"
#include "networks/shapes.h"

namespace superneurons {

Result<Trace> lower(const Network& net, const LoweringOptions& options) {
  if (auto error = find_fault(net, options.batch)) return *std::move(error);
  for (const double value : {options.rate, options.momentum, options.weight_decay})
    if (!std::isfinite(value))
      return Error{.message = fmt::format("learning rate, momentum or weight decay is {}", value)};
  const LoweringStyle style = style_of(options.lowering);
  LoweringOptions as_styled = options;
  if (style.updates_at_once) as_styled.updates = Updates::arrive;
  TraceBuilder builder(net, as_styled);
  if (options.lowering == Lowering::paper) lower_paper(builder);
  else lower_native(builder, style);
  return builder.finish();
}

}  // namespace superneurons
