#include "tracer/program_activity.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace superneurons {
namespace {

/// A call or what it launched, to be brought together by the number of the call.
struct Part {
  std::uint32_t call = 0;
  std::uint32_t name = 0;
  std::uint32_t where = 0;  // a call's thread, else the stream
  std::uint8_t rank = 0;    // 0: the call; 1 + DeviceWork: what it launched
  std::int64_t start = 0, end = 0;
  std::int64_t bytes = 0;

  bool operator<(const Part& other) const {
    // The call first, then its work by time, whatever its kind.
    const auto order = [](const Part& p) {
      return std::tuple(p.call, p.rank > 0, p.start, p.end, p.where, p.name, p.rank, p.bytes);
    };
    return order(*this) < order(other);
  }
};

/// What happened at a moment of the host's time, in this order where that is the same.
enum class Happening : std::uint8_t { open, allocate, launch, wait, release, close };

struct Event {
  std::int64_t at = 0;
  Happening kind = Happening::launch;
  DeviceWork work = DeviceWork::kernel;
  std::uint32_t order = 0;  // a launch's call, a range's id
  std::uint32_t name = 0;
  std::uint32_t thread = 0;
  std::uint32_t stream = 0;
  std::int64_t start = 0, end = 0;  // of a launch on the device; of an allocation address, bytes
  std::int64_t more = 0;            // a launch's bytes, a wait's ns

  bool operator<(const Event& other) const {
    const auto key = [](const Event& e) {
      return std::tuple(e.at, e.kind, e.order, e.start, e.end, e.stream, e.name, e.work, e.more,
                        e.thread);
    };
    return key(*this) < key(other);
  }
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Calls in which the host waits for the device: cudaStreamSynchronize, cudaMemcpy ...
bool waits(std::string_view name) {
  return has(name, "Synchronize") || (has(name, "Memcpy") && !has(name, "Async"));
}

/// Splits the log into what is sorted by call and what has its place in time already.
class Splitter final : public ActivityVisitor {
 public:
  Splitter(ExternalSort<Part>& parts, ExternalSort<Event>& events)
      : parts_(parts), events_(events) {}

  Status work(const SeenWork& work, std::uint32_t name) override {
    if (++works_ == kNone)
      return Error{.message = "there are too many kernels and copies (would be below 2^32)"};
    return parts_.add({work.call, name, work.stream,
                       static_cast<std::uint8_t>(1 + static_cast<int>(work.kind)), work.start,
                       work.end, work.bytes});
  }
  Status call(const SeenCall& call, std::uint32_t name, std::string_view text) override {
    if (waits(text)) {
      Status status = events_.add({.at = call.end,
                                   .kind = Happening::wait,
                                   .order = call.call,
                                   .thread = call.thread,
                                   .more = call.end - call.start});
      if (!status || has(text, "Synchronize")) return status;
    }
    return parts_.add({call.call, name, call.thread, 0, call.start, call.end, 0});
  }
  Status memory(const SeenMemory& memory) override {
    return events_.add({.at = memory.at,
                        .kind = memory.allocates ? Happening::allocate : Happening::release,
                        .start = static_cast<std::int64_t>(memory.address),
                        .end = memory.bytes});
  }
  Status mark(const SeenMark& mark, std::uint32_t name) override {
    return events_.add({.at = mark.at,
                        .kind = mark.begins ? Happening::open : Happening::close,
                        .order = mark.id,
                        .name = name,
                        .thread = mark.thread});
  }

 private:
  ExternalSort<Part>& parts_;
  ExternalSort<Event>& events_;
  std::uint32_t works_ = 0;
};

/// Gives each kernel and copy the thread and the time of the call that launched it.
Status join(ExternalSort<Part>& parts, ExternalSort<Event>& events, std::int64_t& uncalled) {
  if (Status status = parts.finish(); !status) return status;
  Part part, call;
  bool has_call = false;
  std::int64_t last_issue = 0;
  for (;;) {
    const auto more = parts.next(part);
    if (!more) return more.error();
    if (!*more) return Ok{};
    if (part.rank == 0) {
      call = part;
      has_call = true;
      continue;
    }
    const bool known = has_call && call.call == part.call;
    // Calls are numbered as they are made: one that was lost came after the one before it.
    if (known) last_issue = call.start;
    else ++uncalled;
    Status status = events.add({.at = last_issue,
                                .kind = Happening::launch,
                                .work = static_cast<DeviceWork>(part.rank - 1),
                                .order = part.call,
                                .name = part.name,
                                .thread = known ? call.where : 0,
                                .stream = part.where,
                                .start = part.start,
                                .end = part.end,
                                .more = part.bytes});
    if (!status) return status;
  }
}

/// Walks through what happened in the host's time.
class Sweep {
 public:
  Sweep(ProgramActivity& program, const std::string& wanted) : program_(program), wanted_(wanted) {}

  Status run(ExternalSort<Event>& events) {
    if (Status status = events.finish(); !status) return status;
    Event event;
    for (;;) {
      const auto more = events.next(event);
      if (!more) return more.error();
      if (!*more) break;
      if (Status status = take(event); !status) return status;
    }
    close_all();
    return flush_pending();
  }

 private:
  struct Open {
    std::uint32_t range = kNone;
    std::uint32_t thread = 0;
    std::uint32_t first = 0;  // launch
    bool wanted = false;
  };

  Status take(const Event& event) {
    switch (event.kind) {
      case Happening::launch:
        return launch(event);
      case Happening::wait:
        if (has_pending_) pending_.sync_ns = add_times(pending_.sync_ns, event.more);
        break;
      case Happening::open:
        open(event);
        break;
      case Happening::close:
        close(event.order);
        break;
      case Happening::allocate:
        allocate(static_cast<std::uint64_t>(event.start), event.end);
        break;
      case Happening::release:
        release(static_cast<std::uint64_t>(event.start), event.end);
        break;
    }
    return Ok{};
  }

  std::uint32_t count() const { return static_cast<std::uint32_t>(program_.tokens.size()); }

  Status flush_pending() {
    if (!std::exchange(has_pending_, false)) return Ok{};
    return program_.launches.add(pending_);
  }

  Status launch(const Event& event) {
    if (Status status = flush_pending(); !status) return status;
    pending_ = Launch{.start = event.start,
                      .end = event.end,
                      .issued = event.at,
                      .bytes = event.more,
                      .name = event.name,
                      .thread = event.thread,
                      .range = innermost(event.thread),
                      .kind = event.work};
    has_pending_ = true;
    const bool kernel = event.work == DeviceWork::kernel;
    std::uint64_t token = event.name * 4ULL + static_cast<std::uint64_t>(event.work);
    if (!kernel) token ^= static_cast<std::uint64_t>(event.more) * 0x9e3779b97f4a7c15ULL;
    token = (token ^ (token >> 32)) * 0xff51afd7ed558ccdULL;
    program_.tokens.push_back(static_cast<std::uint32_t>(token >> 32));
    program_.kernels.push_back(kernel);
    return Ok{};
  }

  std::uint32_t innermost(std::uint32_t thread) const {
    const auto own = stacks_.find(thread);
    if (own != stacks_.end() && !own->second.empty()) return open_.at(own->second.back()).range;
    const auto all = stacks_.find(0);
    if (all != stacks_.end() && !all->second.empty()) return open_.at(all->second.back()).range;
    return kNone;
  }

  void open(const Event& event) {
    if (open_.count(event.order) > 0) close(event.order);  // its end was lost
    const std::string_view name = plain_range_name(program_.names[event.name]);
    Open fresh{static_cast<std::uint32_t>(program_.ranges.size()), event.thread, count()};
    const std::uint32_t parent = innermost(event.thread);
    fresh.wanted = !wanted_.empty() && (name == wanted_ || program_.names[event.name] == wanted_);
    program_.ranges.push_back({event.name, parent, count()});
    if (parent == kNone && program_.outermost.size() < 8 &&
        std::find(program_.outermost.begin(), program_.outermost.end(), name) ==
            program_.outermost.end())
      program_.outermost.emplace_back(name);
    wanted_open_ += fresh.wanted;
    open_[event.order] = fresh;
    stacks_[event.thread].push_back(event.order);
  }

  void close(std::uint32_t id) {
    const auto found = open_.find(id);
    if (found == open_.end()) return;  // it began before the tracer did
    const Open closed = found->second;
    open_.erase(found);
    auto& stack = stacks_[closed.thread];
    const auto place = std::find(stack.rbegin(), stack.rend(), id);
    if (place != stack.rend()) stack.erase(std::next(place).base());
    if (closed.wanted && --wanted_open_ == 0 && closed.first < count())
      program_.spans.push_back({closed.first, count()});
    // One without launches is forgotten, unless another has come after it.
    if (closed.first == count() && closed.range + 1 == program_.ranges.size())
      program_.ranges.pop_back();
  }

  /// What the program left open, innermost first.
  void close_all() {
    std::vector<std::pair<std::uint32_t, std::uint32_t>> left;  // range, id
    left.reserve(open_.size());
    for (const auto& [id, one] : open_) left.emplace_back(one.range, id);
    std::sort(left.rbegin(), left.rend());
    for (const auto& [range, id] : left) close(id);
  }

  void allocate(std::uint64_t address, std::int64_t bytes) {
    if (bytes == 0) return;
    end_lifetime(live_.find(address));  // its free was lost
    live_[address] = program_.allocations.size();
    program_.allocations.push_back({address, bytes, count(), kNone});
  }

  /// Unmapping may end several mappings at once.
  void release(std::uint64_t address, std::int64_t bytes) {
    end_lifetime(live_.find(address));
    const std::uint64_t last = address + static_cast<std::uint64_t>(bytes);
    for (auto at = live_.lower_bound(address); at != live_.end() && at->first < last;)
      end_lifetime(at++);
  }

  void end_lifetime(std::map<std::uint64_t, std::size_t>::iterator at) {
    if (at == live_.end()) return;
    program_.allocations[at->second].freed = count();
    live_.erase(at);
  }

  ProgramActivity& program_;
  const std::string& wanted_;
  Launch pending_;  // until it is known whether the host waits for it
  bool has_pending_ = false;
  std::unordered_map<std::uint32_t, Open> open_;                          // by id
  std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> stacks_;  // by thread
  std::map<std::uint64_t, std::size_t> live_;                             // by address
  int wanted_open_ = 0;
};

}  // namespace

Result<ProgramActivity> program_activity(const ActivityInput& input, const std::string& range) {
  ExternalSort<Part> parts(input.folder, input.memory / 4);
  ExternalSort<Event> events(input.folder, input.memory / 2);
  ProgramActivity program(RowStore<Launch>(input.folder, input.memory / 4));
  Splitter splitter(parts, events);
  auto end = input.path.empty() ? parse_activities(input.text, input.name, splitter)
                                : read_activities(input.path, splitter);
  if (!end) return end.error();
  program.names = std::move(end->names);
  program.command = std::move(end->command);
  program.dropped = end->dropped;
  program.complete = end->complete;
  if (Status status = join(parts, events, program.uncalled); !status) return status.error();
  if (Status status = Sweep(program, range).run(events); !status) return status.error();
  return program;
}

}  // namespace superneurons
