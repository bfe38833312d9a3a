// Where a prediction misses: predicted beside measured time of every kind of op, of the copies and
// of the gaps between.
#pragma once

#include "bench/lab.h"
#include "simulator/outcome.h"

namespace superneurons {

/// Compares the predicted timeline (with spans) with the spans measured in one training step:
/// `by_kind` maps each kind of op (reruns apart, as "KIND again"), "offload" and "prefetch" to
/// runs, recorded_ns (what the trace says of the choices taken; of copies what the link takes
/// alone), predicted_ns (beside copies) and measured_ns, and "idle" to what the compute stream
/// waited; `worst_ops` lists the runs that were missed by most; `timed_step_ns` is the training
/// step in which all this was measured: the events around each op cost some 4 us of it (H200).
/// Nothing without measured spans.
void add_by_kind(Row& row, const Trace& trace, const DeviceProfile& profile,
                 const Evaluation& predicted, const Measured& measured);

/// Start and end of every command, predicted and measured, as CSV.
std::string spans_csv(const Trace& trace, const Evaluation& predicted, const Measured& measured);

}  // namespace superneurons
