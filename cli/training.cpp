#include "cli/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "cli/session.h"
#include "ir/files.h"
#include "replay/replay.h"

namespace superneurons {
namespace {

constexpr std::string_view kDataSuffix = ".csv.gz";
constexpr std::size_t kLossesShown = 8;
constexpr double kLong = 20;  // seconds, from which on a note says so

std::string duration(double seconds) {
  if (seconds < 1) return "less than 1 s";
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string about(double seconds) {
  return seconds < 1 ? duration(seconds) : "about " + duration(seconds);
}

}  // namespace

Result<DataSet> find_data_set(const std::string& name) {
  const Result<std::string> file = find_file(name, "data", kDataSuffix, "data set");
  if (!file) return file.error();
  return read_data_set(*file);
}

std::string losses_text(const std::vector<float>& losses) {
  if (losses.empty()) return "";
  const std::size_t last = losses.size() - 1;
  const bool all = losses.size() <= kLossesShown;
  std::string text = all ? "loss of each training step:" : "loss of training step";
  const std::size_t shown = std::min(losses.size(), kLossesShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t step = all ? i : last * i / (shown - 1);
    if (!all) text += fmt::format("{} {}:", i == 0 ? "" : ",", step + 1);
    text += fmt::format(" {:.6g}", losses[step]);
  }
  return text + "\n";
}

Status compare_losses(const Outcome& outcome) {
  const auto step = difference(outcome.reference_losses, outcome.losses);
  if (!step) return Ok{};
  const auto loss = [&](const std::vector<float>& of) {
    return *step < of.size() ? fmt::format("{:.9g}", of[*step]) : std::string("none");
  };
  return Error{.code = ErrorCode::not_equal,
               .message = fmt::format(
                   "not equal: the loss of training step {} is {} where the reference has {}",
                   *step + 1, loss(outcome.losses), loss(outcome.reference_losses))};
}

std::string accuracy_text(const Outcome& outcome) {
  if (outcome.test_images == 0) return "";
  return fmt::format(
      "test accuracy {:.1f} % ({} of {} images of {} that were not trained on)\n",
      100.0 * static_cast<double>(outcome.test_correct) / static_cast<double>(outcome.test_images),
      outcome.test_correct, outcome.test_images, outcome.data);
}

ReplayWatch::ReplayWatch(Console& console, const ReplayProgress& progress, std::string label,
                         int training_steps, bool follows)
    : console_(console),
      progress_(progress),
      label_(std::move(label)),
      steps_(training_steps),
      follows_(follows),
      start_(std::chrono::steady_clock::now()) {
  try {
    thread_ = std::thread([this] { watch(); });
  } catch (const std::system_error&) {  // no thread to be had: nothing is shown
  }
}

ReplayWatch::~ReplayWatch() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ReplayWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::milliseconds(250), [this] { return over_; }))
    show(std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count());
}

/// An estimate is given once a whole training step is timed: its ops take unequal time.
void ReplayWatch::show(double seconds) {
  const auto commands = progress_.commands.load(), done = progress_.done.load();
  if (commands <= 0 || done <= 0) return;
  const double part = static_cast<double>(done) / static_cast<double>(commands);
  const int step = std::min(static_cast<int>(part * steps_) + 1, steps_);
  std::string line =
      fmt::format("{}training step {} of {}, {:.0f} %", label_, step, steps_, 100 * part);
  if (step > 1) {
    const double left = seconds / part - seconds;
    line += fmt::format(", {} left", about(left));
    if (follows_) line += fmt::format(", then {} for the reference", duration(seconds / part));
    if (!noted_ && left + (follows_ ? seconds / part : 0) > kLong)
      console_.note(fmt::format("a training step takes {} here: {} for {} of them{}",
                                about(seconds / part / steps_), duration(seconds / part), steps_,
                                follows_ ? ", and as long for those of the reference" : ""));
    noted_ = true;
  }
  console_.progress(line);
}

}  // namespace superneurons
