// Hazards: who used a range of bytes last, and which of its users a new command must wait for.
// Internal to build_program.
//
//     stream      compute    offload    prefetch
//     position 0  write x                            x: writer 0
//     position 1             read x                  waits for 0; x: writer 0, offload 1
//     position 2  write x                            waits for 1; x: writer 2
//
// Positions count commands over the opening and the steady training step. Commands of one stream
// run in order, so one position per stream says all: "this one and all before it on its stream".
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <vector>

#include "simulator/program.h"

namespace superneurons {

using Position = std::int32_t;
inline constexpr Position kNobody = -1;
using Positions = std::array<Position, kStreamNames.size()>;
inline constexpr Positions kNone = {kNobody, kNobody, kNobody};

/// The later of the two on each stream.
inline void raise(Positions& to, const Positions& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = to[i] < from[i] ? from[i] : to[i];
}

/// Users of one range since it was handed out.
struct Users {
  Position writer = kNobody;
  Stream writer_stream = Stream::compute;
  Positions others = kNone;  // readers since the writer, and former users of the bytes

  Positions all() const;
};

/// Users of bytes that nobody holds now, for whom the next holder must wait.
class FormerUsers {
 public:
  /// The range is given back: its users are remembered.
  void release(Range range, const Users& users);
  /// The range is handed out: former users of any of its bytes, which are then forgotten.
  Positions take(Range range);

 private:
  struct Interval {
    std::int64_t end;
    Positions users;
  };
  using Intervals = std::pmr::map<std::int64_t, Interval>;  // by begin, disjoint
  // On the heap, so that its address survives a move of this object.
  std::unique_ptr<std::pmr::unsynchronized_pool_resource> pool_ =
      std::make_unique<std::pmr::unsynchronized_pool_resource>();
  Intervals intervals_{pool_.get()};
};

/// Collects what one command after another depends on and keeps the waits that are not implied:
/// each position knows, per stream, up to where everything has ended when it starts, and whoever
/// waits for it knows the same.
class WaitResolver {
 public:
  /// The current command reads or writes a range with these users, and becomes one of them.
  void read(Users& users, Stream stream);
  void write(Users& users, Stream stream);

  struct Needed {
    Position command = kNobody;
    Cause cause = Cause::reuse;
  };
  /// Needed waits of the current command, by source stream; then goes on to the next command.
  std::array<Needed, kStreamNames.size()> finish(Stream stream);

  Position current() const { return static_cast<Position>(ended_.size()); }

 private:
  void consider(Stream source, Position command, Cause cause);

  std::array<Needed, kStreamNames.size()> needed_;
  std::array<Positions, kStreamNames.size()> known_{kNone, kNone, kNone};
  std::vector<Positions> ended_;  // by position
};

}  // namespace superneurons
