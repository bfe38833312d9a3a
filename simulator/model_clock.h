// Model clock: three FIFO lanes (streams) whose jobs disturb each other. Copies in both directions
// share the link like a fluid, kernels run slower while bytes move. Internal to the model backend.
//
// All starts and ends are whole nanoseconds, so that the account of lost time is exact: each
// moment of the compute lane, from the end of one training step's last job to the end of the
// next one's, is compute or one cause.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "ir/device_profile.h"
#include "simulator/program.h"

namespace superneurons {

/// Something a job waits for: the end of a job of another lane.
struct JobWait {
  Stream source = Stream::compute;
  Cause cause = Cause::reuse;
  std::uint32_t position = 0;  // in the source lane
};

struct Job {
  std::int64_t issued = 0;   // host time from which it may start
  std::int64_t nominal = 0;  // duration when nothing disturbs it, in ns
  std::int64_t latency = 0;  // copies: the part of nominal in which no bytes move
  bool memory_bound = true;  // compute: which interference applies
  bool joined = false;  // compute: of the launch of the job before, so that no gap lies between
  std::uint32_t command = 0;
  std::uint32_t training_step = 0;
  std::uint32_t first_wait = 0, waits = 0;
  std::int64_t start = -1, end = -1;  // set by the clock
};

/// Account of the compute lane in one training step.
struct StepAccount {
  std::int64_t end = 0;  // of its last compute job (of the step before, if it has none)
  std::int64_t compute = 0;
  std::array<std::int64_t, kCauseNames.size()> stall{};
  std::int64_t copies_end = 0;  // of its last copy
};

class ModelClock {
 public:
  explicit ModelClock(const DeviceProfile& profile);

  void begin_training_step();
  void reserve(std::size_t jobs);  // per lane
  /// Queues a job behind those of its lane, waiting for what add_wait named since the last submit.
  /// `issued` must not be before the time advanced to. Returns its position in the lane.
  std::uint32_t submit(Stream stream, Job job);
  void add_wait(const JobWait& wait) { waits_.push_back(wait); }

  /// Processes all that happens up to `until`; nothing may be issued before it afterwards.
  void advance(std::int64_t until);
  /// Processes until that job has ended; returns when.
  std::int64_t finish(Stream stream, std::uint32_t position);
  void drain() { advance(kForever); }

  const std::vector<Job>& jobs(Stream stream) const { return lane(stream).jobs; }
  const std::vector<StepAccount>& steps() const { return steps_; }

 private:
  static constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();
  enum class Phase : std::uint8_t { waiting, latency, working };

  struct Lane {
    std::vector<Job> jobs;
    std::size_t head = 0;  // jobs before it have ended
    Phase phase = Phase::waiting;
    std::int64_t due = kForever;  // when its phase ends; kForever: not known yet
    double left = 0;              // working: undisturbed ns still to do at `now_`
    double rate = 1;              // working: progress per ns
    std::int64_t free_at = 0;     // end of its last job
    // Why the head cannot start before `due` (waiting).
    Cause cause = Cause::host;
    std::int64_t until = 0;
  };

  Lane& lane(Stream stream) { return lanes_[static_cast<std::size_t>(stream)]; }
  const Lane& lane(Stream stream) const { return lanes_[static_cast<std::size_t>(stream)]; }
  bool step(std::int64_t until);
  /// Before the head of the lane.
  std::int64_t gap_before(const Lane& lane, bool compute) const {
    return compute && lane.head > 0 && !lane.jobs[lane.head].joined ? gap_ : 0;
  }
  void find_start(Lane& lane, bool compute);
  void start(Lane& lane, bool compute);
  void end_phase(Lane& lane, bool compute);
  void account_idle(const Lane& lane, const Job& job);
  void progress(std::int64_t to);
  void set_rates();
  double slowdown(bool memory_bound, bool out, bool in) const;

  std::int64_t gap_, wait_;
  Interference memory_bound_, compute_bound_;
  double shared_rate_ = 1;  // of a copy's own rate while both directions move bytes
  std::array<Lane, kStreamNames.size()> lanes_;
  std::vector<JobWait> waits_;
  std::uint32_t first_wait_ = 0;
  std::vector<StepAccount> steps_;
  std::int64_t now_ = 0;
};

}  // namespace superneurons
