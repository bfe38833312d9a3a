#include "simulator/program.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "simulator/hazards.h"

namespace superneurons {
namespace {

bool contains(const std::vector<TensorId>& ids, TensorId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// A tensor's (or workspace's, or scratch's) bytes in one space.
struct Holding {
  Range range;
  Users users;
  bool held = false;
};

/// One side of memory: who holds what, and who held the rest before.
struct Memory {
  std::vector<Holding> tensors;
  FormerUsers former;

  Holding hold(Range range) { return {range, {kNobody, {}, former.take(range)}, true}; }
  void release(Holding& holding) {
    if (!holding.held) return;
    former.release(holding.range, holding.users);
    holding.held = false;
  }
};

/// Walks the plan twice: the opening training step makes the commands and their waits, the steady
/// one, which starts from what the first left behind, only waits.
class Builder {
 public:
  Builder(const Trace& trace, const Plan& plan, const Placement& placement,
          const ProgramOptions& options)
      : trace_(trace), plan_(plan), placement_(placement), options_(options) {
    device_.tensors.resize(trace.tensors.size());
    host_.tensors.resize(trace.tensors.size());
    program_.commands.reserve(plan.steps.size());
    program_.arena = placement.placed_peak;
    program_.host_pool = placement.host_peak;
  }

  Program build() {
    for (const Allocation& home : placement_.homes)
      memory(home.space).tensors[home.tensor.index] = memory(home.space).hold(home.range);
    table_ = &program_.opening;
    walk();
    opening_commands_ = static_cast<Position>(program_.commands.size());
    opening_ = false;
    carry_over();
    table_ = &program_.steady;
    walk();
    number_events();
    return std::move(program_);
  }

 private:
  Memory& memory(Space space) { return space == Space::device ? device_ : host_; }

  void walk() {
    ran_.assign(trace_.ops.size(), false);
    table_->waits.reserve(plan_.steps.size() / 4);
    table_->first.reserve(plan_.steps.size() + 1);
    for (std::uint32_t i = 0; i < plan_.steps.size(); ++i) {
      allocate(i);
      const PlanStep& step = plan_.steps[i];
      switch (step.kind) {
        case StepKind::run:
          run(i, step);
          break;
        case StepKind::offload:
          copy(i, CommandKind::copy_out, step.tensor());
          break;
        case StepKind::prefetch:
          copy(i, CommandKind::copy_in, step.tensor());
          break;
        case StepKind::free:
          free(i, step.tensor());
          break;
        case StepKind::free_host:
          host_.release(host_.tensors[step.subject]);
          break;
      }
    }
    table_->first.push_back(static_cast<std::uint32_t>(table_->waits.size()));
  }

  void allocate(std::uint32_t step) {
    for (std::uint32_t i = placement_.first[step]; i < placement_.first[step + 1]; ++i) {
      const Allocation& made = placement_.allocations[i];
      Memory& side = memory(made.space);
      switch (made.use) {
        case Use::tensor:
          side.tensors[made.tensor.index] = side.hold(made.range);
          break;
        case Use::workspace:
          workspace_ = side.hold(made.range);
          break;
        case Use::scratch:
          scratch_.emplace_back(made.tensor, side.hold(made.range));
          break;
      }
    }
  }

  /// A tensor's holding on the device. One that was freed from its home is held there again.
  Holding& on_device(TensorId tensor) {
    Holding& holding = device_.tensors[tensor.index];
    if (!holding.held) holding = device_.hold(holding.range);
    return holding;
  }

  void run(std::uint32_t index, const PlanStep& step) {
    const Op& op = trace_[step.op()];
    Command command{.kind = CommandKind::run,
                    .stream = Stream::compute,
                    .plan_step = index,
                    .subject = step.subject,
                    .choice = step.choice,
                    .rerun = ran_[step.subject],
                    .first_operand = static_cast<std::uint32_t>(program_.operands.size()),
                    .operands = static_cast<std::uint32_t>(op.reads.size() + op.writes.size()),
                    .device = workspace_.range};
    ran_[step.subject] = true;
    const auto skipped = [&](TensorId id) { return command.rerun && contains(op.once, id); };
    for (const Access& read : op.reads) {
      if (skipped(read.tensor)) {
        operand(kAbsent);
        continue;
      }
      Holding& holding = on_device(read.tensor);
      resolver_.read(holding.users, Stream::compute);
      operand(holding.range.offset + read.offset);
    }
    for (const Access& write : op.writes) {
      if (skipped(write.tensor) || contains(op.choices[step.choice].omits, write.tensor)) {
        operand(kAbsent);
        continue;
      }
      Holding* scratch = contains(step.discard, write.tensor) ? scratch_of(write.tensor) : nullptr;
      Holding& holding = scratch != nullptr ? *scratch : on_device(write.tensor);
      resolver_.write(holding.users, Stream::compute);
      operand(holding.range.offset + write.offset);
    }
    if (workspace_.held) resolver_.write(workspace_.users, Stream::compute);
    issue(command);
    device_.release(workspace_);
    workspace_ = {};
    for (auto& [tensor, holding] : scratch_) device_.release(holding);
    scratch_.clear();
  }

  void copy(std::uint32_t index, CommandKind kind, TensorId tensor) {
    const bool out = kind == CommandKind::copy_out;
    Holding& device = on_device(tensor);
    Holding& host = host_.tensors[tensor.index];
    const Stream stream = out ? Stream::offload : Stream::prefetch;
    resolver_.read((out ? device : host).users, stream);
    resolver_.write((out ? host : device).users, stream);
    issue({.kind = kind,
           .stream = stream,
           .plan_step = index,
           .subject = tensor.index,
           .device = device.range,
           .host = host.range});
  }

  void free(std::uint32_t index, TensorId tensor) {
    Holding& holding = device_.tensors[tensor.index];
    if (options_.poison_freed && holding.held) {
      resolver_.write(holding.users, Stream::compute);
      issue({.kind = CommandKind::poison,
             .stream = Stream::compute,
             .plan_step = index,
             .subject = tensor.index,
             .device = holding.range});
    }
    device_.release(holding);
  }

  Holding* scratch_of(TensorId tensor) {
    for (auto& [owner, holding] : scratch_)
      if (owner == tensor) return &holding;
    return nullptr;
  }

  void operand(Bytes offset) {
    if (opening_) program_.operands.push_back(offset);
  }

  void issue(const Command& command) {
    table_->first.push_back(static_cast<std::uint32_t>(table_->waits.size()));
    [[maybe_unused]] const Position position = resolver_.current();
    const auto needed = resolver_.finish(command.stream);
    for (std::size_t source = 0; source < needed.size(); ++source) {
      if (needed[source].command == kNobody) continue;
      const bool before = !opening_ && needed[source].command < opening_commands_;
      const Position index = needed[source].command - (opening_ || before ? 0 : opening_commands_);
      // A command of the step before is waited for only by those that come before it in the plan:
      // past it, this step's own run of it is the later user.
      assert(!before || index > position - opening_commands_);
      table_->waits.push_back(
          {static_cast<std::uint32_t>(index), static_cast<Stream>(source), needed[source].cause});
    }
    if (opening_) program_.commands.push_back(command);
  }

  /// Between training steps the value of `end` becomes that of `start`, in the same bytes.
  void carry_over() {
    std::vector<std::pair<Holding, Holding>> ends;
    for (const Carry& carry : trace_.carry) {
      ends.emplace_back(device_.tensors[carry.end.index], host_.tensors[carry.end.index]);
      if (carry.end == carry.start) continue;
      device_.tensors[carry.end.index].held = false;
      host_.tensors[carry.end.index].held = false;
    }
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const Carry& carry = trace_.carry[i];
      if (carry.end == carry.start) continue;
      if (ends[i].first.held) device_.tensors[carry.start.index] = ends[i].first;
      if (ends[i].second.held) host_.tensors[carry.start.index] = ends[i].second;
    }
  }

  /// Waits name commands so far; those waited for get an event slot, in order of issue.
  void number_events() {
    for (const WaitTable* table : {&program_.opening, &program_.steady})
      for (const Wait& wait : table->waits) program_.commands[wait.event].event = 0;
    for (Command& command : program_.commands)
      if (command.event == 0) command.event = static_cast<std::int32_t>(program_.events++);
    for (WaitTable* table : {&program_.opening, &program_.steady})
      for (Wait& wait : table->waits)
        wait.event = static_cast<std::uint32_t>(program_.commands[wait.event].event);
  }

  const Trace& trace_;
  const Plan& plan_;
  const Placement& placement_;
  const ProgramOptions& options_;

  Program program_;
  Memory device_, host_;
  WaitResolver resolver_;
  std::vector<bool> ran_;  // ops run in this training step
  Holding workspace_;      // of the current plan step
  std::vector<std::pair<TensorId, Holding>> scratch_;
  bool opening_ = true;
  Position opening_commands_ = 0;
  WaitTable* table_ = nullptr;
};

}  // namespace

Program build_program(const Trace& trace, const Plan& plan, const Placement& placement,
                      const ProgramOptions& options) {
  return Builder(trace, plan, placement, options).build();
}

}  // namespace superneurons
