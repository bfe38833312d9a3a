// Host backend: the arena and the pool are plain memory, the streams are threads.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include "ir/files.h"
#include "memory/allocator.h"
#include "replay/host_memory.h"
#include "replay/host_streams.h"
#include "replay/initial.h"
#include "replay/replay_backend.h"

namespace superneurons {
namespace {

using Clock = std::chrono::steady_clock;

Nanoseconds between(Clock::time_point from, Clock::time_point to) {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(to - from).count()};
}

/// A command with all it needs, so that nothing of the issuing thread's is read later.
struct Work {
  Command command;
  std::uint32_t index = 0;  // in Program::commands
  int training_step = 0;
  std::vector<std::byte*> reads, writes;
};

struct TimedSpan {
  Clock::time_point start, end;
};

class HostBackend final : public ReplayBackend {
 public:
  HostBackend(std::unique_ptr<Kernels> kernels, const ReplayBackendOptions& options,
              HostMemory arena, HostMemory pool)
      : kernels_(std::move(kernels)),
        options_(options),
        arena_(std::move(arena)),
        pool_(std::move(pool)) {}

  ~HostBackend() override { halted_ = true; }

  Status prepare(const Trace& trace, const Program& program) override;
  Status begin_training_step(int training_step) override;
  Status wait(Stream stream, const Wait& wait) override;
  Status run(const Issue& issue) override;
  Status copy(const Issue& issue) override;
  Status record(Stream stream, std::uint32_t event) override;
  Status end_training_step(int training_step) override;
  Status sync() override;

  Status initialise(const Trace& trace, TensorId tensor, Space space, Range range) override;
  Result<std::uint64_t> checksum(Space space, Range range) override;
  Status read(Space space, Range range, std::byte* to) override;
  Status feed(std::vector<Fed> inputs) override;
  Status check_guards() override;
  Measured measured() const override;

 private:
  HostMemory& memory(Space space) { return space == Space::device ? arena_ : pool_; }
  Bytes& peak(Space space) { return space == Space::device ? peak_ : host_peak_; }
  Status need(Space space, Range range, Bytes* high = nullptr);
  Status resolve(const Issue& issued, Work& work);
  Result<std::vector<std::byte*>> addresses(std::span<const Bytes> offsets,
                                            const std::vector<Access>& accesses);
  Status issue(Work work);
  void execute(const Work& work);
  Status perform(const Work& work);
  Status perform_run(const Work& work);
  std::vector<GuardedRange> guarded(const Work& work) const;
  void delay(const Work& work) const;
  void fail(const Error& error);
  Status failure();

  std::unique_ptr<Kernels> kernels_;
  ReplayBackendOptions options_;
  HostMemory arena_, pool_;
  const Trace* trace_ = nullptr;

  // Of the issuing thread.
  Bytes peak_{}, host_peak_{};
  std::uint32_t next_command_ = 0;
  std::uint32_t serial_event_ = 0;  // those of feed() follow it
  Clock::time_point origin_;

  // Shared with the streams.
  std::atomic<bool> halted_ = false;
  std::mutex mutex_;  // of the next five
  std::optional<Error> error_, guard_error_;
  std::vector<Clock::time_point> ends_;  // per training step, when the last stream was done
  std::size_t streams_ended_ = 0;        // once for each stream and training step
  std::array<Clock::time_point, kStreamNames.size()> last_end_{};  // by stream, of its own thread:
                                                                   // when a command was last done
  std::condition_variable stream_ended_;
  std::vector<TimedSpan> spans_;  // each written by the one stream of its command

  HostStreams streams_;  // last: its threads end before anything they use
};

Status HostBackend::prepare(const Trace& trace, const Program& program) {
  if (Status status = kernels_->prepare(trace, options_.seed); !status) return status;
  trace_ = &trace;
  serial_event_ = program.events;
  const std::lock_guard lock(mutex_);
  ends_.clear();
  streams_ended_ = 0;
  last_end_.fill({});
  spans_.assign(options_.keep_spans ? program.commands.size() : 0, {});
  return Ok{};
}

/// At most two training steps are under way, however far ahead the issuing thread could be.
Status HostBackend::begin_training_step(int) {
  next_command_ = 0;
  std::unique_lock lock(mutex_);
  stream_ended_.wait(lock, [this] {
    return streams_ended_ + kStreamNames.size() >= ends_.size() * kStreamNames.size();
  });
  if (ends_.empty()) origin_ = Clock::now();
  ends_.push_back(origin_);
  return Ok{};
}

Status HostBackend::end_training_step(int) {
  for (std::size_t i = 0; i < kStreamNames.size(); ++i)
    streams_.post(static_cast<Stream>(i), [this, i, step = ends_.size() - 1] {
      const std::lock_guard lock(mutex_);
      // Not now: a stream with nothing to do may get here late, on a busy machine.
      ends_[step] = std::max(ends_[step], last_end_[i]);
      ++streams_ended_;
      stream_ended_.notify_all();
    });
  return Ok{};
}

Status HostBackend::wait(Stream stream, const Wait& wait) {
  streams_.wait(stream, wait.event);
  return Ok{};
}

Status HostBackend::record(Stream stream, std::uint32_t event) {
  streams_.record(stream, event);
  return Ok{};
}

Status HostBackend::sync() {
  streams_.sync();
  return failure();
}

/// The range lies in its memory; raises `high` to its end, if there is one.
Status HostBackend::need(Space space, Range range, Bytes* high) {
  const Bytes size = memory(space).bytes();
  if (range.offset < 0_B || range.bytes < 0_B || range.offset + range.bytes > size)
    return Error{ErrorCode::device, "bytes " + std::to_string(range.offset.count) + " to " +
                                        std::to_string((range.offset + range.bytes).count) +
                                        " are outside the " +
                                        (space == Space::device ? "arena" : "host pool") + " of " +
                                        std::to_string(size.count) + " bytes"};
  if (high != nullptr) *high = std::max(*high, range.offset + range.bytes);
  return Ok{};
}

Result<std::vector<std::byte*>> HostBackend::addresses(std::span<const Bytes> offsets,
                                                       const std::vector<Access>& accesses) {
  std::vector<std::byte*> result(accesses.size(), nullptr);
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    if (i >= offsets.size() || offsets[i] == kAbsent) continue;
    // The kernel gets an address in a range that is the whole tensor's, however little it accesses.
    const Range whole{offsets[i] - accesses[i].offset, (*trace_)[accesses[i].tensor].bytes};
    Status status = need(Space::device, whole, &peak_);
    if (!status) {
      status.error().message = (*trace_)[accesses[i].tensor].name + ": " + status.error().message;
      return status.error();
    }
    result[i] = arena_.data() + offsets[i].count;
  }
  return result;
}

Status HostBackend::run(const Issue& issued) {
  Work work{issued.command, next_command_++, issued.training_step, {}, {}};
  if (Status status = resolve(issued, work); !status)
    return failed_at(status.error(), *trace_, issued.command, issued.training_step);
  return issue(std::move(work));
}

/// Addresses of operands and workspace.
Status HostBackend::resolve(const Issue& issued, Work& work) {
  if (Status status = need(Space::device, work.command.device, &peak_); !status) return status;
  if (work.command.kind == CommandKind::run) {
    const Op& op = trace_->ops[work.command.subject];
    Result<std::vector<std::byte*>> reads = addresses(issued.reads, op.reads);
    if (!reads) return reads.error();
    Result<std::vector<std::byte*>> writes = addresses(issued.writes, op.writes);
    if (!writes) return writes.error();
    work.reads = *std::move(reads);
    work.writes = *std::move(writes);
  }
  return Ok{};
}

Status HostBackend::copy(const Issue& issued) {
  Work work{issued.command, next_command_++, issued.training_step, {}, {}};
  Status status = need(Space::device, work.command.device, &peak_);
  if (status) status = need(Space::host, work.command.host, &host_peak_);
  if (!status) return failed_at(status.error(), *trace_, issued.command, issued.training_step);
  return issue(std::move(work));
}

/// Guards overlap what the same bytes held before or hold later, about which the program's waits
/// say nothing, so with guards the streams take turns.
Status HostBackend::issue(Work work) {
  if (halted_) return failure();
  const Stream stream = work.command.stream;
  const bool serial = options_.guard > 0_B;
  if (serial) streams_.wait(stream, serial_event_);
  streams_.post(stream, [this, moved = std::move(work)] { execute(moved); });
  if (serial) streams_.record(stream, serial_event_);
  return Ok{};
}

void HostBackend::execute(const Work& work) {
  if (options_.stop != nullptr && *options_.stop) fail({ErrorCode::cancelled, "stopped"});
  if (halted_) return;
  if (options_.stress) delay(work);
  const Clock::time_point start = Clock::now();
  if (Status status = perform(work); !status)
    return fail(failed_at(status.error(), *trace_, work.command, work.training_step));
  if (options_.progress != nullptr) ++options_.progress->done;
  const Clock::time_point end = last_end_[static_cast<std::size_t>(work.command.stream)] =
      Clock::now();
  if (work.index < spans_.size()) spans_[work.index] = {start, end};
}

/// Every second command waits up to 100 us, by the seed alone.
void HostBackend::delay(const Work& work) const {
  const std::uint64_t random =
      mix(mix(options_.seed, static_cast<std::uint64_t>(work.training_step)), work.index);
  if (random % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds((random >> 8) % 100));
}

Status HostBackend::perform(const Work& work) {
  const Command& command = work.command;
  std::byte* const device = arena_.data() + command.device.offset.count;
  const auto bytes = static_cast<std::size_t>(command.device.bytes.count);
  switch (command.kind) {
    case CommandKind::run:
      return perform_run(work);
    case CommandKind::poison:
      std::memset(device, 0xff, bytes);  // as floats: not numbers
      break;
    case CommandKind::copy_out:
      std::memcpy(pool_.data() + command.host.offset.count, device, bytes);
      break;
    case CommandKind::copy_in:
      std::memcpy(device, pool_.data() + command.host.offset.count, bytes);
      break;
  }
  return Ok{};
}

Status HostBackend::perform_run(const Work& work) {
  const Op& op = trace_->ops[work.command.subject];
  const std::vector<GuardedRange> ranges = guarded(work);
  for (const GuardedRange& range : ranges) fill_guards(arena_, range, options_.guard);
  KernelCall call;
  call.op = {work.command.subject};
  call.choice = work.command.choice;
  call.rerun = work.command.rerun;
  call.training_step = work.training_step;
  call.stop = options_.stop;
  call.reads = work.reads;
  call.writes = work.writes;
  if (work.command.device.bytes > 0_B) {
    call.workspace = arena_.data() + work.command.device.offset.count;
    call.workspace_bytes = work.command.device.bytes;
  }
  try {
    if (Status status = kernels_->run(call, nullptr); !status) return status;
    if (call.stopped()) return Error{ErrorCode::cancelled, "stopped"};
  } catch (const std::exception& error) {  // Eigen asks for temporary memory
    return Error{ErrorCode::device, error.what()};
  }
  for (const GuardedRange& range : ranges) {
    const std::string damage = guard_damage(arena_, range, options_.guard);
    if (damage.empty()) continue;
    const std::lock_guard lock(mutex_);
    if (!guard_error_)
      guard_error_ = Error{ErrorCode::device, "op " + op.name + " wrote " + damage + " of " +
                                                  (range.name.empty() ? "workspace" : range.name)};
  }
  return Ok{};
}

/// Tensors and workspace that the run holds, whole, as they were allocated.
std::vector<GuardedRange> HostBackend::guarded(const Work& work) const {
  std::vector<GuardedRange> ranges;
  if (options_.guard == 0_B) return ranges;
  const Op& op = trace_->ops[work.command.subject];
  add_held(*trace_, op.reads, work.reads, arena_, ranges);
  add_held(*trace_, op.writes, work.writes, arena_, ranges);
  if (work.command.device.bytes > 0_B) ranges.push_back({"", work.command.device});
  return ranges;
}

void HostBackend::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  halted_ = true;
}

Status HostBackend::failure() {
  const std::lock_guard lock(mutex_);
  return error_ ? Status(*error_) : Status(Ok{});
}

Status HostBackend::initialise(const Trace& trace, TensorId tensor, Space space, Range range) {
  const Result<Content> content = first_content(trace, tensor, options_.seed);
  if (!content) return content.error();
  if (Status status = need(space, range, &peak(space)); !status) return status;
  fill(memory(space).data() + range.offset.count, range.bytes, *content);
  return Ok{};
}

Result<std::uint64_t> HostBackend::checksum(Space space, Range range) {
  if (Status status = need(space, range); !status) return status.error();
  return host_checksum(memory(space).data() + range.offset.count, range.bytes);
}

Status HostBackend::read(Space space, Range range, std::byte* to) {
  if (Status status = need(space, range); !status) return status;
  std::memcpy(to, memory(space).data() + range.offset.count,
              static_cast<std::size_t>(range.bytes.count));
  return Ok{};
}

/// The streams meet around the copies, about which the program's waits know nothing.
Status HostBackend::feed(std::vector<Fed> inputs) {
  for (const Fed& input : inputs)
    if (Status s = need(input.space, input.range, &peak(input.space)); !s) return s;
  const std::uint32_t met = serial_event_ + 1;
  const auto streams = static_cast<std::uint32_t>(kStreamNames.size());
  for (std::uint32_t i = 1; i < streams; ++i) {
    streams_.record(static_cast<Stream>(i), met + i);
    streams_.wait(Stream::compute, met + i);
  }
  streams_.post(Stream::compute, [this, moved = std::move(inputs)] {
    for (const Fed& input : moved)
      std::memcpy(memory(input.space).data() + input.range.offset.count, input.content.data(),
                  input.content.size());
  });
  streams_.record(Stream::compute, met);
  for (std::uint32_t i = 1; i < streams; ++i) streams_.wait(static_cast<Stream>(i), met);
  return Ok{};
}

Status HostBackend::check_guards() {
  const std::lock_guard lock(mutex_);
  return guard_error_ ? Status(*guard_error_) : Status(Ok{});
}

Measured HostBackend::measured() const {
  Measured measured;
  Clock::time_point before = origin_, start = origin_;
  for (const Clock::time_point end : ends_) {
    measured.steps.push_back(between(before, end));
    start = std::exchange(before, end);
  }
  measured.peak = std::min(round_up(peak_, kAllocationUnit), arena_.bytes());
  measured.host_peak = std::min(round_up(host_peak_, kAllocationUnit), pool_.bytes());
  for (std::uint32_t i = 0; i < spans_.size(); ++i)
    measured.spans.push_back({i, between(start, spans_[i].start), between(start, spans_[i].end)});
  return measured;
}

}  // namespace

Result<std::unique_ptr<ReplayBackend>> make_host_backend(std::unique_ptr<Kernels> kernels,
                                                         const ReplayBackendOptions& options) {
  if (Status status = fits_host(options.arena, options.host_pool); !status) return status.error();
  try {
    return std::unique_ptr<ReplayBackend>(std::make_unique<HostBackend>(
        std::move(kernels), options, HostMemory(options.arena), HostMemory(options.host_pool)));
  } catch (const std::bad_alloc&) {
    return Error{ErrorCode::does_not_fit, "no memory for an arena of " +
                                              format_bytes(options.arena) + " and a host pool of " +
                                              format_bytes(options.host_pool)};
  } catch (const std::system_error& error) {
    return Error{ErrorCode::device, std::string("cannot start threads: ") + error.what()};
  }
}

}  // namespace superneurons
