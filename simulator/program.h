// Program: plan + placement made into commands for three FIFO streams, with every wait resolved.
// Pure: hazards are found in plan order, so model and real backends issue the very same commands.
//
// Every device and host range remembers its last writer and its readers since. A command that reads
// waits for the writer; one that writes waits for writer and readers; a range handed out again
// waits for whoever used any of its bytes before. Waits only point backwards, so nothing deadlocks.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/plan.h"
#include "memory/placement.h"

namespace superneurons {

enum class Stream : std::uint8_t { compute, offload, prefetch };  // each a FIFO
inline constexpr std::array<std::string_view, 3> kStreamNames = {"compute", "offload", "prefetch"};

enum class CommandKind : std::uint8_t { run, copy_out, copy_in, poison };  // ops, copies, tests

/// Why a command waits, and the causes of lost time in a Timeline. They add up to the step's total:
/// step_ns = compute + sum over causes.
enum class Cause : std::uint8_t {
  prefetch,      // data still coming in (of copy streams: not there yet to be copied)
  reuse,         // the range is still being copied out (or in) by its former user
  host,          // the host had not issued the work yet
  interference,  // kernels slowed by copies
  gap,           // between queued kernels of one stream, and after waits
  tail,          // copies that outlive the last kernel of their step, where the next one waits
};
inline constexpr std::array<std::string_view, 6> kCauseNames = {"prefetch",     "reuse", "host",
                                                                "interference", "gap",   "tail"};

inline constexpr Bytes kAbsent{-1};  // operand that a rerun skips (`once`) or a choice omits

struct Command {  // what one plan step puts into one stream
  CommandKind kind = CommandKind::run;
  Stream stream = Stream::compute;
  std::uint32_t plan_step = 0;
  std::uint32_t subject = 0;  // op for run, tensor otherwise
  std::uint32_t choice = 0;
  bool rerun = false;
  std::uint32_t first_operand =
      0;                       // run: arena offset of each access (tensor start + access.offset),
  std::uint32_t operands = 0;  //      op.reads first, then op.writes; kAbsent if skipped
  Range device;                // run: workspace; copies and poison: the tensor's range
  Range host;                  // copies
  std::int32_t event = -1;     // event slot to record after it; -1: nobody waits for it
};

struct Wait {  // of a command, for an event recorded by an earlier one
  std::uint32_t event = 0;
  Stream source = Stream::compute;
  Cause cause = Cause::reuse;
};

/// Waits of all commands, flattened: command i waits for waits[first[i]] .. waits[first[i + 1]).
struct WaitTable {
  std::vector<Wait> waits;
  std::vector<std::uint32_t> first;
};

struct Program {  // commands in issue order, and what each waits for
  std::vector<Command> commands;
  std::vector<Bytes> operands;
  WaitTable opening;  // of the first training step
  WaitTable steady;   // of every later one: also waits for events of the step before
  std::uint32_t events = 0;
  Bytes arena{};  // device bytes addressed
  Bytes host_pool{};
};

struct ProgramOptions {
  bool poison_freed = false;  // replay --stress: overwrite ranges when they are freed
};

/// The plan must have passed check() and place().
Program build_program(const Trace& trace, const Plan& plan, const Placement& placement,
                      const ProgramOptions& options = {});

}  // namespace superneurons
