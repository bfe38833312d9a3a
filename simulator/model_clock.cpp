#include "simulator/model_clock.h"

#include <algorithm>
#include <cmath>

namespace superneurons {
namespace {

inline constexpr auto kCompute = static_cast<std::size_t>(Stream::compute);
inline constexpr auto kOffload = static_cast<std::size_t>(Stream::offload);
inline constexpr auto kPrefetch = static_cast<std::size_t>(Stream::prefetch);

/// Whole ns that `left` undisturbed ns take; rounding noise does not make a nanosecond.
std::int64_t whole(double left, double rate) {
  const double ns = std::ceil((rate == 1.0 ? left : left / rate) - 1e-6);
  return static_cast<std::int64_t>(std::min(ns, static_cast<double>(kLatest.count)));
}

/// Times saturate at kLatest (ir/units.h); then the account of a step no longer adds up, but
/// nothing overflows.
std::int64_t after(std::int64_t time, std::int64_t duration) {
  return later({time}, {duration}).count;
}

}  // namespace

ModelClock::ModelClock(const DeviceProfile& profile)
    : gap_(std::max<std::int64_t>(profile.gap_ns.count, 0)),
      wait_(std::max<std::int64_t>(profile.wait_ns.count, 0)),
      memory_bound_(profile.memory_bound),
      compute_bound_(profile.compute_bound) {
  const double alone = profile.offload.bytes_per_ns + profile.prefetch.bytes_per_ns;
  if (profile.both_bytes_per_ns > 0 && profile.both_bytes_per_ns < alone)
    shared_rate_ = profile.both_bytes_per_ns / alone;
}

void ModelClock::begin_training_step() { steps_.emplace_back(); }

void ModelClock::reserve(std::size_t jobs) {
  for (Lane& lane : lanes_) lane.jobs.reserve(lane.jobs.size() + jobs);
}

std::uint32_t ModelClock::submit(Stream stream, Job job) {
  job.first_wait = first_wait_;
  first_wait_ = static_cast<std::uint32_t>(waits_.size());
  job.waits = first_wait_ - job.first_wait;
  Lane& lane = lanes_[static_cast<std::size_t>(stream)];
  lane.jobs.push_back(job);
  return static_cast<std::uint32_t>(lane.jobs.size() - 1);
}

void ModelClock::advance(std::int64_t until) {
  while (step(until)) {
  }
}

std::int64_t ModelClock::finish(Stream stream, std::uint32_t position) {
  const Lane& target = lane(stream);
  while (target.head <= position && step(kForever)) {
  }
  return target.jobs[position].end;
}

/// Goes to the next start or end of any lane, if there is one until then.
bool ModelClock::step(std::int64_t until) {
  std::int64_t next = kForever;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    Lane& each = lanes_[i];
    if (each.phase == Phase::waiting && each.due == kForever && each.head < each.jobs.size())
      find_start(each, i == kCompute);
    next = std::min(next, each.due);
  }
  if (next == kForever || next > until) return false;
  progress(next);
  for (std::size_t i = 0; i < lanes_.size(); ++i)
    if (lanes_[i].due == next) {
      if (lanes_[i].phase == Phase::waiting) start(lanes_[i], i == kCompute);
      else end_phase(lanes_[i], i == kCompute);
    }
  set_rates();
  return true;
}

/// Sets when the head may start, unless something it waits for has not ended yet.
void ModelClock::find_start(Lane& lane, bool compute) {
  const Job& job = lane.jobs[lane.head];
  const JobWait* const waits = waits_.data() + job.first_wait;
  for (std::uint32_t i = 0; i < job.waits; ++i)
    if (lanes_[static_cast<std::size_t>(waits[i].source)].head <= waits[i].position) return;
  std::int64_t due = after(lane.free_at, gap_before(lane, compute));
  lane.cause = Cause::gap;
  if (job.issued > due) {
    due = job.issued;
    lane.cause = Cause::host;
  }
  for (std::uint32_t i = 0; i < job.waits; ++i) {
    const Job& source = lanes_[static_cast<std::size_t>(waits[i].source)].jobs[waits[i].position];
    if (source.end + wait_ <= due) continue;
    due = after(source.end, wait_);
    lane.until = source.end;
    // A copy of the step before that is still wanted outlived that step's last kernel.
    lane.cause = source.training_step < job.training_step ? Cause::tail : waits[i].cause;
  }
  lane.due = std::max(due, now_);
}

void ModelClock::account_idle(const Lane& lane, const Job& job) {
  auto& stall = steps_[job.training_step].stall;
  const std::int64_t idle = job.start - lane.free_at;
  std::int64_t blocked = 0;
  if (lane.cause == Cause::host) blocked = idle - std::min(idle, gap_before(lane, true));
  else if (lane.cause != Cause::gap) blocked = std::max<std::int64_t>(lane.until - lane.free_at, 0);
  stall[static_cast<std::size_t>(lane.cause)] += blocked;
  stall[static_cast<std::size_t>(Cause::gap)] += idle - blocked;
}

void ModelClock::start(Lane& lane, bool compute) {
  Job& job = lane.jobs[lane.head];
  job.start = lane.due;
  if (compute) account_idle(lane, job);
  lane.phase = job.latency > 0 ? Phase::latency : Phase::working;
  lane.left = static_cast<double>(job.nominal - job.latency);
  lane.rate = 1;
  lane.due = after(job.start, job.latency > 0 ? job.latency : job.nominal);
}

void ModelClock::end_phase(Lane& lane, bool compute) {
  Job& job = lane.jobs[lane.head];
  if (lane.phase == Phase::latency) {
    lane.phase = Phase::working;
    lane.rate = 1;
    lane.due = after(lane.due, job.nominal - job.latency);
    return;
  }
  job.end = lane.free_at = lane.due;
  lane.phase = Phase::waiting;
  lane.due = kForever;
  ++lane.head;
  StepAccount& account = steps_[job.training_step];
  if (!compute) {
    account.copies_end = std::max(account.copies_end, job.end);
    return;
  }
  account.end = job.end;
  account.compute = after(account.compute, job.nominal);
  account.stall[static_cast<std::size_t>(Cause::interference)] +=
      std::max<std::int64_t>(job.end - job.start - job.nominal, 0);
}

void ModelClock::progress(std::int64_t to) {
  const auto passed = static_cast<double>(to - now_);
  for (Lane& lane : lanes_)
    if (lane.phase == Phase::working) lane.left = std::max(lane.left - passed * lane.rate, 0.0);
  now_ = to;
}

double ModelClock::slowdown(bool memory_bound, bool out, bool in) const {
  const Interference& factors = memory_bound ? memory_bound_ : compute_bound_;
  const double factor = out && in ? factors.both : out ? factors.offload : factors.prefetch;
  return out || in ? 1 / (1 + std::max(factor, 0.0)) : 1;
}

void ModelClock::set_rates() {
  const bool out = lanes_[kOffload].phase == Phase::working;
  const bool in = lanes_[kPrefetch].phase == Phase::working;
  const auto set = [&](Lane& lane, double rate) {
    if (lane.phase != Phase::working || lane.rate == rate) return;
    lane.rate = rate;
    lane.due = after(now_, whole(lane.left, rate));
  };
  Lane& compute = lanes_[kCompute];
  if (compute.phase == Phase::working)
    set(compute, slowdown(compute.jobs[compute.head].memory_bound, out, in));
  set(lanes_[kOffload], in ? shared_rate_ : 1);
  set(lanes_[kPrefetch], out ? shared_rate_ : 1);
}

}  // namespace superneurons
