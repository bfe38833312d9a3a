// A recorded trace with its device, and plans for shares of what liveness needs of it.
#pragma once

#include <string>

#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "memory/placement.h"
#include "networks/roofline.h"
#include "simulator/outcome.h"
#include "tests/policies/fixtures.h"

namespace superneurons {

struct Recorded {
  Trace trace;
  DeviceProfile profile;
  Predict predict;
  Bytes peak;  // what liveness needs

  /// `name` of traces/; `device` of traces/profiles/, to which the times are scaled.
  explicit Recorded(const std::string& name, const std::string& device = "h200")
      : trace(*read_trace(SUPERNEURONS_SOURCE_DIR "/traces/" + name + ".jsonl.gz")),
        profile(profile_of("h200")) {
    if (device != "h200") {
      const DeviceProfile other = profile_of(device);
      EXPECT_TRUE(scale_to_device(trace, profile, other));
      profile = other;
    }
    predict = predictor(trace, profile);
    peak = *smallest_arena(
        trace, *make_plan(trace, profile, request_for("liveness", {1LL << 50}), predict));
  }
  Recorded(const Recorded&) = delete;  // `predict` knows where the trace is
  Recorded& operator=(const Recorded&) = delete;

  Result<Plan> plan(const std::string& policy, int percent, bool explain = false) const {
    PlanRequest request = request_for(policy, {peak.count * percent / 100}, 64_GiB);
    request.explain = explain;
    request.seek_floor = false;
    return make_plan(trace, profile, request, predict);
  }
  Nanoseconds time(const Plan& plan) const { return predict(plan)->step_ns; }

 private:
  static DeviceProfile profile_of(const std::string& name) {
    return *read_profile(SUPERNEURONS_SOURCE_DIR "/traces/profiles/" + name + ".json");
  }
};

}  // namespace superneurons
