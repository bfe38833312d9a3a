#include "simulator/execute.h"

namespace superneurons {
namespace {

inline constexpr std::size_t kStopInterval = 256;  // commands

class Driver {
 public:
  Driver(const Trace& trace, const Program& program, Backend& backend,
         const ExecuteOptions& options)
      : trace_(trace), program_(program), backend_(backend), options_(options) {}

  Status training_step(int step) {
    if (Status begun = backend_.begin_training_step(step); !begun) return begun;
    if (options_.begun)
      if (Status told = options_.begun(step); !told) return told;
    const WaitTable& table = step == 0 ? program_.opening : program_.steady;
    for (std::size_t i = 0; i < program_.commands.size(); ++i) {
      if (i % kStopInterval == 0 && stopped()) return cancelled();
      const std::span<const Wait> waits(table.waits.data() + table.first[i],
                                        table.first[i + 1] - table.first[i]);
      if (Status issued = issue(program_.commands[i], waits, step); !issued) return issued;
    }
    return backend_.end_training_step(step);
  }

  bool stopped() const {
    return options_.stop != nullptr && options_.stop->load(std::memory_order_relaxed);
  }
  static Error cancelled() { return {.code = ErrorCode::cancelled, .message = "cancelled"}; }

 private:
  Status issue(const Command& command, std::span<const Wait> waits, int step) {
    for (const Wait& wait : waits)
      if (Status waited = backend_.wait(command.stream, wait); !waited) return waited;
    Issue issue{command, {}, {}, step};
    if (command.kind == CommandKind::run) {
      const Bytes* operands = program_.operands.data() + command.first_operand;
      const std::size_t reads = trace_.ops[command.subject].reads.size();
      issue.reads = {operands, reads};
      issue.writes = {operands + reads, command.operands - reads};
    }
    const bool copies =
        command.kind == CommandKind::copy_out || command.kind == CommandKind::copy_in;
    if (Status done = copies ? backend_.copy(issue) : backend_.run(issue); !done) return done;
    if (command.event < 0) return Ok{};
    return backend_.record(command.stream, static_cast<std::uint32_t>(command.event));
  }

  const Trace& trace_;
  const Program& program_;
  Backend& backend_;
  const ExecuteOptions& options_;
};

}  // namespace

Status execute(const Trace& trace, const Program& program, Backend& backend,
               const ExecuteOptions& options) {
  if (!options.prepared)
    if (Status prepared = backend.prepare(trace, program); !prepared) return prepared;
  Driver driver(trace, program, backend, options);
  Status status = Ok{};
  for (int step = 0; step < options.training_steps && status; ++step)
    status = driver.stopped() ? Status(Driver::cancelled()) : driver.training_step(step);
  // Synced in any case, so that nobody frees memory under running work. The first Error counts.
  Status synced = backend.sync();
  return status ? std::move(synced) : std::move(status);
}

}  // namespace superneurons
