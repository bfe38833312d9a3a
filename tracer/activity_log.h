// The activity log of a program that is not ours: what libsuperneurons_cupti saw, as JSON Lines.
#pragma once

#include <string>

#include "tracer/activity.h"

namespace superneurons {

/// One line per device activity in order of start, then an end record with totals:
///     {"tag":-1,"name":"gemm","correlation":7,"stream":13,"start":10,"end":25,"kernel":true}
///     {"r":"end","activities":1,"dropped":0}
/// Times in ns on the tracer's clock; tag -1: none was set. Goes by way of PATH.tmp, of which
/// nothing is left if it fails. False if it cannot be written; throws only std::bad_alloc.
bool write_activity_log(ActivityLog log, const std::string& path);

}  // namespace superneurons
