// What the measuring programs share: the machine's profile, recorded traces, rows of a result file.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "ir/device_profile.h"
#include "ir/result.h"
#include "ir/trace.h"
#include "networks/network.h"
#include "replay/replay.h"
#include "simulator/outcome.h"

namespace superneurons {

using Row = nlohmann::ordered_json;

/// Progress, on standard error.
void say(const std::string& line);

/// Where results go and what runs them. Several processes may share a folder.
struct Lab {
  std::string out;  // folder
  std::string on = "cuda";
  std::string program;  // for origins
  double limit_s = 0;   // stop cleanly before that much time has passed; 0: no limit
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  bool on_cuda() const { return on == "cuda"; }
  double elapsed_s() const;
  /// Whether something that takes so long would still end in time.
  bool time_for(double seconds) const { return limit_s <= 0 || elapsed_s() + seconds <= limit_s; }
};

/// Makes the folder of results. Error bad_usage unless the lab is on the host or a GPU, and some of
/// the training steps are no warm-up.
Status prepare_lab(const Lab& lab, int steps, int warmup);

/// OUT/profile.json, calibrated on this machine if it is not there yet.
Result<DeviceProfile> profile_of(const Lab& lab);

/// What is recorded, and how thoroughly.
struct Recording {
  std::string network;
  std::int64_t batch = 0;
  Updates updates = Updates::end;
  double rate = LoweringOptions{}.rate;
  int choice_steps = 0;  // of each round of choices; 0: as many as there are traced training steps
  int untraced_steps = 20;
};

/// OUT/NETWORK-bBATCH.jsonl.gz, recorded with choices on this machine if it is not there yet; under
/// a policy that saves memory where the network does not fit the whole device with everything kept.
/// Where another process is recording it, waits for that.
Result<Trace> recorded_trace(const Lab& lab, const DeviceProfile& profile,
                             const Recording& recording);

/// What the model says, in bytes and nanoseconds.
void add_prediction(Row& row, const Outcome& outcome);
/// What the machine says of these training steps: their median, and the peak.
void add_measurement(Row& row, const Measured& measured, std::span<const Nanoseconds> steps,
                     Nanoseconds predicted);
/// Seconds to the nearest 10 ms.
double seconds_since(std::chrono::steady_clock::time_point begin);

using KeyOf = std::function<std::string(const Row&)>;
/// Rows that an earlier run finished (with wall_s, or an answer that they do not fit), by key;
/// half-written lines do not count.
std::map<std::string, Row> finished_rows(const std::string& file, const KeyOf& key);
/// Appends the row as a line of its own, whatever else appends to the file, and says it.
Status append_row(const std::string& file, const Row& row);

/// "k/n": the k-th of n parts of the work. Error bad_usage.
struct Part {
  std::size_t part = 1, parts = 1;
  bool has(std::size_t index) const { return index % parts == part - 1; }
};
Result<Part> parse_part(const std::string& text);

}  // namespace superneurons
