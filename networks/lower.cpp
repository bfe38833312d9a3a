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
  TraceBuilder builder(net, options);
  if (options.lowering == Lowering::native) lower_native(builder);
  else lower_paper(builder);
  return builder.finish();
}

}  // namespace superneurons
