// What replay says of training: data sets by name, loss curves, test accuracy, how long it takes.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/console.h"
#include "replay/data_set.h"
#include "replay/replay_backend.h"
#include "simulator/outcome.h"

namespace superneurons {

/// A data set by file or by name (data/NAME.csv.gz, also where it was installed).
Result<DataSet> find_data_set(const std::string& name);

/// The loss of each training step, of eight of them where there are more; "" without losses.
std::string losses_text(const std::vector<float>& losses);

/// Error not_equal with the first training step whose loss is not the reference's, to the bit.
Status compare_losses(const Outcome& outcome);

/// "test accuracy 97.2 % (350 of 360 ...)", or "" where nothing was tested.
std::string accuracy_text(const Outcome& outcome);

/// While it lives, shows how far a replay is, and notes once how long it will take if that is long.
/// Nobody else may use the console meanwhile.
class ReplayWatch {
 public:
  /// `label`: "" or what is replayed; `follows`: as much work again comes after it.
  ReplayWatch(Console& console, const ReplayProgress& progress, std::string label,
              int training_steps, bool follows);
  ~ReplayWatch();
  ReplayWatch(const ReplayWatch&) = delete;
  ReplayWatch& operator=(const ReplayWatch&) = delete;

 private:
  void watch();
  void show(double seconds);

  Console& console_;
  const ReplayProgress& progress_;
  std::string label_;
  int steps_;
  bool follows_;
  bool noted_ = false;
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace superneurons
