// What the measuring programs share: the machine's profile, recorded traces, rows of a result file.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "ir/device_profile.h"
#include "ir/result.h"
#include "ir/trace.h"
#include "replay/replay.h"
#include "simulator/outcome.h"

namespace superneurons {

using Row = nlohmann::ordered_json;

/// Progress, on standard error.
void say(const std::string& line);

/// Where results go and what runs them.
struct Lab {
  std::string out;  // folder
  std::string on = "cuda";
  std::string program;  // for origins
  bool on_cuda() const { return on == "cuda"; }
};

/// OUT/profile.json, calibrated on this machine if it is not there yet.
Result<DeviceProfile> profile_of(const Lab& lab);

/// OUT/NETWORK-bBATCH.jsonl.gz, recorded with choices on this machine if it is not there yet.
Result<Trace> recorded_trace(const Lab& lab, const std::string& network, std::int64_t batch);

/// What the model says, in bytes and nanoseconds.
void add_prediction(Row& row, const Outcome& outcome);
/// What the machine says: the median training step after the warm-up, and the peak.
void add_measurement(Row& row, const Measured& measured, Nanoseconds predicted, int warmup);

/// Keys of the rows that an earlier run finished (with wall_s, or an answer that they do not fit);
/// half-written lines do not count.
std::set<std::string> finished_rows(const std::string& file,
                                    const std::function<std::string(const Row&)>& key);
/// Whether a line can be appended; true of a missing or empty file too.
bool ends_with_newline(const std::string& file);

}  // namespace superneurons
