// The CUDA backend: one arena, three streams, events for every hazard, one pinned pool.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "ir/files.h"
#include "memory/allocator.h"
#include "replay/cuda/cuda_memory.h"
#include "replay/cuda/memory_kernels.h"
#include "replay/replay_backend.h"

namespace superneurons {
namespace {

constexpr std::int64_t kLongestDelay = 400'000;  // clock cycles, some 200 microseconds

Nanoseconds between(cudaEvent_t from, cudaEvent_t to) {
  float ms = 0;
  if (failure(cudaEventElapsedTime(&ms, from, to), {})) return {};  // one was not recorded
  return {static_cast<std::int64_t>(static_cast<double>(ms) * 1e6)};
}

class CudaBackend final : public ReplayBackend {
 public:
  CudaBackend(CudaMemory memory, std::unique_ptr<Kernels> kernels,
              const ReplayBackendOptions& options)
      : options_(options), memory_(std::move(memory)), kernels_(std::move(kernels)) {}
  ~CudaBackend() override { (void)cudaDeviceSynchronize(); }

  Status open();

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
  // Guards belong to a range but not to its hazards, so with guards all work is one stream.
  cudaStream_t stream(Stream of) const {
    return streams_[options_.guard.count > 0 ? 0 : static_cast<std::size_t>(of)].get();
  }
  Status delay(Stream of);
  Status start_span(const Issue& issue);
  Status end_span(const Issue& issue);
  bool keeps_span(const Issue& issue) const {
    return options_.keep_spans && issue.training_step >= options_.spans_from;
  }
  Status run_op(const Issue& issue);
  void resolve(const Issue& issue, const Op& op);
  Status guards(const Issue& issue, const Op& op, bool check);
  Status guard(std::byte* at, Bytes bytes, std::uint64_t code, bool check);
  void touch(Range device) { peak_ = std::max(peak_, device.offset + device.bytes); }
  Status run_command(const Issue& issue);
  Status copy_command(const Issue& issue);
  bool stopped() const { return options_.stop != nullptr && *options_.stop; }

  ReplayBackendOptions options_;
  CudaMemory memory_;
  std::array<StreamOwner, 3> streams_;
  StreamOwner join_;                      // runs nothing but the event that ends a training step
  std::array<EventOwner, 3> last_event_;  // of each stream, for join_
  EventOwner end_;
  Staging staging_;
  std::vector<EventOwner> begins_;  // of the training steps since the last sync
  std::size_t open_steps_ = 0;
  std::vector<EventOwner> events_;                  // one per event slot
  std::vector<std::array<EventOwner, 2>> span_of_;  // start and end of each command
  std::vector<std::byte*> operands_;
  const Trace* trace_ = nullptr;
  const Program* program_ = nullptr;
  std::vector<Nanoseconds> steps_;
  std::vector<Span> spans_;
  Bytes peak_{}, host_peak_{}, outside_{};
  std::uint64_t delays_ = 0;
  std::unique_ptr<Kernels> kernels_;  // goes first: its libraries hold the streams
};

Status CudaBackend::open() {
  for (std::size_t i = 0; i <= streams_.size(); ++i) {
    auto made = make_stream();
    if (!made) return made.error();
    (i < streams_.size() ? streams_[i] : join_) = std::move(*made);
    auto event = make_event(i == streams_.size());
    if (!event) return event.error();
    (i < streams_.size() ? last_event_[i] : end_) = std::move(*event);
  }
  return Ok{};
}

Status CudaBackend::prepare(const Trace& trace, const Program& program) {
  trace_ = &trace;
  program_ = &program;
  if (program.arena > options_.arena || program.host_pool > options_.host_pool) {
    return Error{
        .code = ErrorCode::does_not_fit,
        .message = fmt::format("the plan addresses {} of an arena of {} and {} of a host "
                               "pool of {}",
                               format_bytes(program.arena), format_bytes(options_.arena),
                               format_bytes(program.host_pool), format_bytes(options_.host_pool))};
  }
  while (events_.size() < program.events) {
    auto event = make_event(false);
    if (!event) return event.error();
    events_.push_back(std::move(*event));
  }
  while (options_.keep_spans && span_of_.size() < program.commands.size()) {
    auto start = make_event(true);
    auto end = make_event(true);
    if (!start || !end) return start ? end.error() : start.error();
    span_of_.push_back({std::move(*start), std::move(*end)});
  }
  open_steps_ = 0;
  steps_.clear();
  spans_.clear();
  return kernels_->prepare(trace, options_.seed);
}

Status CudaBackend::begin_training_step(int) {
  if (open_steps_ == begins_.size()) {
    auto event = make_event(true);
    if (!event) return event.error();
    begins_.push_back(std::move(*event));
  }
  SUPERNEURONS_TRY(cudaEventRecord(begins_[open_steps_++].get(), stream(Stream::compute)));
  return Ok{};
}

Status CudaBackend::end_training_step(int) {
  // Copies of the step may still run: its end waits for all streams, on a stream of its own so that
  // nothing else does.
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    SUPERNEURONS_TRY(cudaEventRecord(last_event_[i].get(), streams_[i].get()));
    SUPERNEURONS_TRY(cudaStreamWaitEvent(join_.get(), last_event_[i].get(), 0));
  }
  SUPERNEURONS_TRY(cudaEventRecord(end_.get(), join_.get()));
  return Ok{};
}

Status CudaBackend::wait(Stream of, const Wait& wait) {
  SUPERNEURONS_TRY(cudaStreamWaitEvent(stream(of), events_[wait.event].get(), 0));
  return Ok{};
}

Status CudaBackend::record(Stream of, std::uint32_t event) {
  SUPERNEURONS_TRY(cudaEventRecord(events_[event].get(), stream(of)));
  return Ok{};
}

Status CudaBackend::delay(Stream of) {
  if (!options_.stress) return Ok{};
  const std::uint64_t random = mix(options_.seed, ++delays_);
  if (random % 4 != 0) return Ok{};  // a quarter of the commands: enough to shuffle the streams
  SUPERNEURONS_TRY(
      launch_spin(static_cast<std::int64_t>((random >> 8) % kLongestDelay), stream(of)));
  return Ok{};
}

Status CudaBackend::start_span(const Issue& issue) {
  const Command& command = issue.command;
  if (Status delayed = delay(command.stream); !delayed) return delayed;
  if (!keeps_span(issue)) return Ok{};
  const auto index = static_cast<std::size_t>(&command - program_->commands.data());
  SUPERNEURONS_TRY(cudaEventRecord(span_of_[index][0].get(), stream(command.stream)));
  return Ok{};
}

Status CudaBackend::end_span(const Issue& issue) {
  const Command& command = issue.command;
  if (options_.progress != nullptr) ++options_.progress->done;
  if (!keeps_span(issue)) return Ok{};
  const auto index = static_cast<std::size_t>(&command - program_->commands.data());
  SUPERNEURONS_TRY(cudaEventRecord(span_of_[index][1].get(), stream(command.stream)));
  return Ok{};
}

Status CudaBackend::run(const Issue& issue) {
  Status done = stopped() ? Status(Error{ErrorCode::cancelled, "stopped"}) : run_command(issue);
  if (done) return done;
  return failed_at(done.error(), *trace_, issue.command, issue.training_step);
}

Status CudaBackend::copy(const Issue& issue) {
  Status done = stopped() ? Status(Error{ErrorCode::cancelled, "stopped"}) : copy_command(issue);
  if (done) return done;
  return failed_at(done.error(), *trace_, issue.command, issue.training_step);
}

Status CudaBackend::run_command(const Issue& issue) {
  const Command& command = issue.command;
  if (Status started = start_span(issue); !started) return started;
  if (command.kind == CommandKind::poison) {
    // All bits set is a NaN in every floating-point format.
    SUPERNEURONS_TRY(cudaMemsetAsync(memory_.at(Space::device, command.device), 0xFF,
                                     static_cast<std::size_t>(command.device.bytes.count),
                                     stream(command.stream)));
  } else if (Status ran = run_op(issue); !ran) {
    return ran;
  }
  return end_span(issue);
}

void CudaBackend::resolve(const Issue& issue, const Op& op) {
  operands_.clear();
  const auto add = [&](std::span<const Bytes> offsets, const std::vector<Access>& accesses) {
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      const bool absent = offsets[i] == kAbsent;
      operands_.push_back(absent ? nullptr : memory_.arena() + offsets[i].count);
      if (absent) continue;
      // An address in a range that is the whole tensor's, however little the kernel accesses.
      touch({offsets[i] - accesses[i].offset, (*trace_)[accesses[i].tensor].bytes});
    }
  };
  add(issue.reads, op.reads);
  add(issue.writes, op.writes);
}

Status CudaBackend::run_op(const Issue& issue) {
  const Command& command = issue.command;
  const Op& op = trace_->ops[command.subject];
  resolve(issue, op);
  KernelCall call;
  call.op = {command.subject};
  call.choice = command.choice;
  call.rerun = command.rerun;
  call.training_step = issue.training_step;
  call.reads = {operands_.data(), issue.reads.size()};
  call.writes = {operands_.data() + issue.reads.size(), issue.writes.size()};
  call.workspace_bytes = command.device.bytes;
  if (command.device.bytes.count > 0) {
    call.workspace = memory_.at(Space::device, command.device);
    touch(command.device);
  }
  if (Status filled = guards(issue, op, false); !filled) return filled;
  if (Status ran = kernels_->run(call, stream(command.stream)); !ran) return ran;
  return guards(issue, op, true);
}

Status CudaBackend::guard(std::byte* range, Bytes bytes, std::uint64_t code, bool check) {
  cudaStream_t on = stream(Stream::compute);
  SUPERNEURONS_TRY(check ? launch_guard_check(range, bytes.count, options_.guard.count, code,
                                              memory_.guard_slot(), on)
                         : launch_guard_fill(range, bytes.count, options_.guard.count, on));
  return Ok{};
}

// Code of a broken guard: op + 1, then the operand (reads, writes, workspace).
Status CudaBackend::guards(const Issue& issue, const Op& op, bool check) {
  if (options_.guard.count == 0) return Ok{};
  const std::uint64_t code = (std::uint64_t{issue.command.subject} + 1) << 32;
  std::uint64_t operand = 0;
  for (std::byte* start : operands_) {
    const Access& access =
        operand < op.reads.size() ? op.reads[operand] : op.writes[operand - op.reads.size()];
    ++operand;
    if (start == nullptr) continue;
    const Bytes bytes = (*trace_)[access.tensor].bytes;
    if (Status done = guard(start - access.offset.count, bytes, code | operand, check); !done)
      return done;
  }
  const Range& workspace = issue.command.device;
  if (workspace.bytes.count == 0) return Ok{};
  return guard(memory_.at(Space::device, workspace), workspace.bytes, code | (operand + 1), check);
}

Status CudaBackend::copy_command(const Issue& issue) {
  const Command& command = issue.command;
  if (Status started = start_span(issue); !started) return started;
  std::byte* device = memory_.at(Space::device, command.device);
  std::byte* host = memory_.at(Space::host, command.host);
  const bool out = command.kind == CommandKind::copy_out;
  const auto bytes = static_cast<std::size_t>(command.device.bytes.count);
  SUPERNEURONS_TRY(cudaMemcpyAsync(out ? host : device, out ? device : host, bytes,
                                   out ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                                   stream(command.stream)));
  touch(command.device);
  host_peak_ = std::max(host_peak_, command.host.offset + command.host.bytes);
  return end_span(issue);
}

Status CudaBackend::sync() {
  for (const StreamOwner& each : streams_) SUPERNEURONS_TRY(cudaStreamSynchronize(each.get()));
  SUPERNEURONS_TRY(cudaStreamSynchronize(join_.get()));
  for (std::size_t i = 0; i < open_steps_; ++i) {
    const bool last = i + 1 == open_steps_;
    steps_.push_back(between(begins_[i].get(), last ? end_.get() : begins_[i + 1].get()));
  }
  if (options_.keep_spans && open_steps_ > 0) {
    cudaEvent_t begin = begins_[open_steps_ - 1].get();
    spans_.clear();
    for (std::uint32_t i = 0; i < program_->commands.size(); ++i) {
      spans_.push_back(
          {i, between(begin, span_of_[i][0].get()), between(begin, span_of_[i][1].get())});
    }
  }
  open_steps_ = 0;
  const auto outside = memory_.outside();
  if (!outside) return outside.error();
  outside_ = *outside;
  return Ok{};
}

Status CudaBackend::initialise(const Trace& trace, TensorId tensor, Space space, Range range) {
  if (space == Space::device) touch(range);
  else host_peak_ = std::max(host_peak_, range.offset + range.bytes);
  return memory_.initialise(trace, tensor, options_.seed, space, range, stream(Stream::compute));
}

Result<std::uint64_t> CudaBackend::checksum(Space space, Range range) {
  return memory_.checksum(space, range, stream(Stream::compute));
}

Status CudaBackend::read(Space space, Range range, std::byte* to) {
  return memory_.read(space, range, to);
}

/// A barrier between two training steps: end_ is the end of the one before, on all streams.
Status CudaBackend::feed(std::vector<Fed> inputs) {
  const cudaStream_t compute = stream(Stream::compute);
  SUPERNEURONS_TRY(cudaStreamWaitEvent(compute, end_.get(), 0));
  const auto slot = staging_.next(inputs);
  if (!slot) return slot.error();
  std::byte* staged = slot->at;
  for (const Fed& input : inputs) {
    const Range range{input.range.offset, {static_cast<std::int64_t>(input.content.size())}};
    if (Status good = memory_.check(input.space, range); !good) return good;
    if (input.space == Space::host) {  // copies of the step before may still read it
      SUPERNEURONS_TRY(cudaEventSynchronize(end_.get()));
      std::copy(input.content.begin(), input.content.end(), memory_.at(input.space, range));
      host_peak_ = std::max(host_peak_, range.offset + range.bytes);
      continue;
    }
    touch(range);
    std::copy(input.content.begin(), input.content.end(), staged);
    SUPERNEURONS_TRY(cudaMemcpyAsync(memory_.at(input.space, range), staged, input.content.size(),
                                     cudaMemcpyHostToDevice, compute));
    staged += input.content.size();
  }
  SUPERNEURONS_TRY(cudaEventRecord(slot->copied, compute));
  for (const Stream of : {Stream::offload, Stream::prefetch})
    SUPERNEURONS_TRY(cudaStreamWaitEvent(stream(of), slot->copied, 0));
  return Ok{};
}

Status CudaBackend::check_guards() {
  const auto code = memory_.first_broken_guard();
  if (!code) return code.error();
  if (*code == 0 || trace_ == nullptr) return Ok{};
  const Op& op = trace_->ops[(*code >> 32) - 1];
  const std::size_t operand = (*code & 0xFFFFFFFF) - 1;
  std::string name = "its workspace";
  if (operand < op.reads.size() + op.writes.size()) {
    const Access& access =
        operand < op.reads.size() ? op.reads[operand] : op.writes[operand - op.reads.size()];
    name = (*trace_)[access.tensor].name;
  }
  return Error{.code = ErrorCode::device,
               .message = fmt::format("{} ({}) wrote outside of {}", op.name, op.kind, name)};
}

Measured CudaBackend::measured() const {
  Measured result;
  result.steps = steps_;
  result.peak = round_up(peak_, kAllocationUnit);
  result.host_peak = round_up(host_peak_, kAllocationUnit);
  result.outside = outside_;
  result.spans = spans_;
  return result;
}

}  // namespace

Result<std::unique_ptr<ReplayBackend>> make_cuda_backend(std::unique_ptr<Kernels> kernels,
                                                         const ReplayBackendOptions& options) {
  auto memory = CudaMemory::take(options.arena, options.host_pool);
  if (!memory) return memory.error();
  auto backend = std::make_unique<CudaBackend>(std::move(*memory), std::move(kernels), options);
  if (Status opened = backend->open(); !opened) return opened.error();
  return std::unique_ptr<ReplayBackend>(std::move(backend));
}

}  // namespace superneurons
