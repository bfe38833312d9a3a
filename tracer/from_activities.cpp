#include "tracer/from_activities.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <unordered_map>

#include "tracer/activity.h"
#include "tracer/activity_tensors.h"
#include "tracer/activity_windows.h"

namespace superneurons {
namespace {

constexpr std::uint32_t kDeepest = 64;                // nested ranges that make ops
constexpr std::size_t kMostRepetitions = 15;          // that medians are taken over
constexpr std::size_t kMostSteps = 1000;              // that the step time is the median of
constexpr std::size_t kMostMeasurements = 4'000'000;  // launches in them together

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// "/usr/bin/train" → "train".
std::string program_name(const std::string& command) {
  const std::string name = command.substr(command.find_last_of('/') + 1);
  return name.empty() ? "program" : name;
}

/// Makes ops of one window.
class OpMaker {
 public:
  OpMaker(const ProgramActivity& program, const Windows& windows, int range_depth)
      : program_(program),
        windows_(windows),
        window_(windows.alike.back()),
        depth_(range_depth > 0 ? static_cast<std::uint32_t>(range_depth) : kDeepest) {}

  /// The op of each launch; `ops` gets the ops, in order of their first launches.
  std::vector<std::uint32_t> make(const std::vector<Launch>& rows, Trace& trace) {
    trace_ = &trace;
    find_owners(rows);
    std::vector<std::uint32_t> op_of;
    op_of.reserve(rows.size());
    for (const Launch& row : rows) op_of.push_back(op_for(row));
    return op_of;
  }
  bool saw_ranges() const { return saw_ranges_; }
  bool saw_phases() const { return saw_phases_; }

 private:
  /// Where the last launch of a thread went.
  struct Last {
    std::uint32_t range = kNone;
    std::uint32_t op = 0;
  };

  /// A range that was opened in the window.
  struct Within {
    std::uint32_t launches = 0;   // in it and in those inside
    std::uint32_t level = 0;      // from outside; 0: makes no op
    std::uint32_t owner = kNone;  // the range whose op gets its launches
  };

  /// What each range's launches belong to, in one pass up and one down: a program may leave its
  /// ranges open, so that they are nested as deeply as it runs long.
  void find_owners(const std::vector<Launch>& rows) {
    const auto& ranges = program_.ranges;
    // In the order in which they were opened, each after the one around it.
    const auto first = std::partition_point(
        ranges.begin(), ranges.end(), [&](const auto& one) { return one.first < window_.first; });
    opened_ = static_cast<std::uint32_t>(first - ranges.begin());
    std::uint32_t end = opened_;
    for (const Launch& row : rows)
      if (row.range != kNone) end = std::max(end, row.range + 1);
    within_.assign(end - opened_, {});
    for (const Launch& row : rows)
      if (is_within(row.range)) ++within(row.range).launches;
    for (std::uint32_t at = end; at-- > opened_;)
      if (is_within(ranges[at].parent)) within(ranges[at].parent).launches += within(at).launches;
    for (std::uint32_t at = opened_; at < end; ++at) {
      if (surrounds(at, rows.size())) continue;
      const std::uint32_t parent = ranges[at].parent;
      Within& one = within(at);
      one.level = is_within(parent) ? within(parent).level + 1 : 1;
      one.owner = one.level <= depth_ ? at : within(parent).owner;
    }
  }
  bool is_within(std::uint32_t range) const { return range != kNone && range >= opened_; }
  Within& within(std::uint32_t range) { return within_[range - opened_]; }
  const Within& within(std::uint32_t range) const { return within_[range - opened_]; }

  /// A range that is open throughout makes no op: it is the training step, or more.
  bool surrounds(std::uint32_t range, std::size_t launches) const {
    return (launches > 1 && within(range).launches == launches) ||
           (!windows_.range.empty() && plain(range) == windows_.range);
  }
  std::string_view plain(std::uint32_t range) const {
    return plain_range_name(program_.names[program_.ranges[range].name]);
  }

  /// Ranges around a launch within the window, outermost first.
  std::vector<std::uint32_t> path(std::uint32_t range) const {
    std::vector<std::uint32_t> up;
    if (is_within(range)) range = within(range).owner;
    for (; is_within(range) && within(range).level > 0; range = program_.ranges[range].parent)
      up.push_back(range);
    std::reverse(up.begin(), up.end());
    return up;
  }

  std::uint32_t op_for(const Launch& row) {
    const std::vector<std::uint32_t> ranges = path(row.range);
    const std::uint32_t owner = ranges.empty() ? kNone : ranges.back();
    const auto last = last_.find(row.thread);
    if (owner != kNone && last != last_.end() && last->second.range == owner) {
      add_kernel(trace_->ops[last->second.op], row);
      return last->second.op;
    }
    const auto index = static_cast<std::uint32_t>(trace_->ops.size());
    last_[row.thread] = {owner, index};
    trace_->ops.push_back(op_of(row, ranges));
    add_kernel(trace_->ops.back(), row);
    return index;
  }

  void add_kernel(Op& op, const Launch& row) const {
    op.kernels.push_back({program_.names[row.name], {}});
  }

  Op op_of(const Launch& row, const std::vector<std::uint32_t>& ranges) {
    Op op;
    op.rerunnable = false;  // who knows what it reads
    op.choices = {Choice{}};
    op.kind = row.kind == DeviceWork::kernel ? "kernel" : program_.names[row.name];
    std::string name = program_.names[row.name];
    if (!ranges.empty()) {
      name = op.kind = plain(ranges.back());
      saw_ranges_ = true;
    }
    for (std::size_t i = 0; i + 1 < ranges.size(); ++i) {
      if (i > 0) op.layer += '/';
      op.layer += plain(ranges[i]);
    }
    if (ranges.size() == 1) op.layer = name;
    for (const std::uint32_t range : ranges)
      if (op.phase == Phase::other) op.phase = phase_of(lower(std::string(plain(range))));
    saw_phases_ = saw_phases_ || op.phase != Phase::other;
    op.name = fmt::format("{}.{}", trace_->ops.size(), name);
    return op;
  }

  static Phase phase_of(const std::string& name) {
    const auto has = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (has("backward")) return Phase::backward;
    if (has("forward")) return Phase::forward;
    if (has("optim") || has("update")) return Phase::update;
    return Phase::other;
  }

  const ProgramActivity& program_;
  const Windows& windows_;
  const RangeSpan window_;
  const std::uint32_t depth_;
  Trace* trace_ = nullptr;
  std::uint32_t opened_ = 0;                      // the first range that was opened in the window
  std::vector<Within> within_;                    // of it and those after it
  std::unordered_map<std::uint32_t, Last> last_;  // by thread
  bool saw_ranges_ = false, saw_phases_ = false;
};

/// Times of each launch and op, one list per repetition.
struct Measured {
  std::vector<std::vector<std::int64_t>> kernel_ns, span_ns, host_ns, sync_ns;
  std::vector<std::int64_t> step_ns;
};

std::int64_t median_of(const std::vector<std::vector<std::int64_t>>& repetitions, std::size_t at) {
  std::vector<Nanoseconds> values;
  for (const auto& one : repetitions) values.push_back({one[at]});
  return median(std::move(values)).count;
}

/// Adds what one repetition took; `next` is the first launch after it, if there is one.
void measure(const std::vector<Launch>& rows, const std::vector<std::uint32_t>& op_of,
             std::size_t ops, const Launch* next, Measured& measured) {
  std::vector<std::int64_t> kernels, first(ops, -1), last(ops), issued(ops), host(ops), sync(ops);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint32_t op = op_of[i];
    kernels.push_back(rows[i].end - rows[i].start);
    if (first[op] < 0) issued[op] = rows[i].issued;
    first[op] = first[op] < 0 ? rows[i].start : std::min(first[op], rows[i].start);
    last[op] = std::max(last[op], rows[i].end);
    sync[op] = add_times(sync[op], rows[i].sync_ns);
  }
  std::vector<std::int64_t> span(ops);
  for (std::size_t op = 0; op < ops; ++op) {
    span[op] = last[op] - first[op];
    const std::int64_t until = op + 1 < ops ? issued[op + 1] : next ? next->issued : issued[op];
    sync[op] = std::min(sync[op], until - issued[op]);
    host[op] = until - issued[op] - sync[op];
  }
  measured.kernel_ns.push_back(std::move(kernels));
  measured.span_ns.push_back(std::move(span));
  measured.host_ns.push_back(std::move(host));
  measured.sync_ns.push_back(std::move(sync));
}

/// From the first launch of one training step to that of the next, or of a single one to its end.
Result<Nanoseconds> step_time(const ProgramActivity& program, const Windows& windows,
                              const std::vector<Launch>& rows) {
  std::vector<Nanoseconds> times;
  std::int64_t before = -1;
  const std::size_t skipped =
      windows.alike.size() - std::min<std::size_t>(windows.alike.size(), kMostSteps);
  for (std::size_t i = skipped; i < windows.alike.size(); ++i) {
    const auto row = program.launches.read(windows.alike[i].first, 1);
    if (!row) return row.error();
    if (before >= 0) times.push_back({std::max<std::int64_t>(row->front().start - before, 0)});
    before = row->front().start;
  }
  if (!times.empty()) return median(std::move(times));
  std::int64_t first = rows.front().start, last = 0;
  for (const Launch& row : rows) {
    first = std::min(first, row.start);
    last = std::max(last, row.end);
  }
  return Nanoseconds{last - first};
}

Status store_times(const ProgramActivity& program, const Windows& windows,
                   const std::vector<Launch>& rows, const std::vector<std::uint32_t>& op_of,
                   Trace& trace) {
  const std::size_t most =
      std::clamp<std::size_t>(kMostMeasurements / rows.size(), 1, kMostRepetitions);
  const std::size_t count = std::min(most, windows.alike.size());
  Measured measured;
  for (std::size_t i = windows.alike.size() - count; i < windows.alike.size(); ++i) {
    const RangeSpan span = windows.alike[i];
    const std::size_t after = span.last < program.launches.size() ? 1 : 0;
    auto some = program.launches.read(span.first, span.last - span.first + after);
    if (!some) return some.error();
    const Launch next = some->back();
    if (after) some->pop_back();
    measure(*some, op_of, trace.ops.size(), after ? &next : nullptr, measured);
    for (const Launch& row : *some)
      trace.owned_ns = {add_times(trace.owned_ns.count, row.end - row.start)};
  }
  std::vector<std::size_t> kernel(trace.ops.size());
  for (std::size_t i = 0; i < rows.size(); ++i)
    trace.ops[op_of[i]].kernels[kernel[op_of[i]]++].ns = {median_of(measured.kernel_ns, i)};
  for (std::size_t op = 0; op < trace.ops.size(); ++op) {
    trace.ops[op].choices.front().ns = {median_of(measured.span_ns, op)};
    trace.ops[op].host_ns = {median_of(measured.host_ns, op)};
    trace.ops[op].host_sync_ns = {median_of(measured.sync_ns, op)};
  }
  const auto step = step_time(program, windows, rows);
  if (!step) return step.error();
  trace.step_ns_traced = *step;
  return Ok{};
}

void set_capabilities(const ProgramActivity& program, const OpMaker& ops, bool frees_inferred,
                      Trace& trace) {
  const auto set = [&](Fact fact, Capability capability) {
    trace.capabilities[static_cast<std::size_t>(fact)] = capability;
  };
  const bool whole = program.dropped == 0 && program.complete;
  const Capability seen = whole ? Capability::exact : Capability::inferred;
  set(Fact::durations, seen);
  set(Fact::kernels, seen);
  if (!program.allocations.empty()) set(Fact::frees, frees_inferred ? Capability::inferred : seen);
  if (program.uncalled < static_cast<std::int64_t>(program.tokens.size()))
    set(Fact::host_times, Capability::inferred);
  if (ops.saw_ranges()) set(Fact::layers, Capability::inferred);
  if (ops.saw_phases()) set(Fact::phases, Capability::inferred);
}

Status add_remarks(const ProgramActivity& program, const Windows& windows, std::size_t lost_heirs,
                   std::vector<std::string>& remarks) {
  remarks.push_back(windows.told);
  if (!program.complete) {
    const auto last = program.launches.read(program.tokens.size() - 1, 1);
    if (!last) return last.error();
    remarks.push_back(fmt::format(
        "the log is cut off after kernel or copy {}, {}: the program ended before its end could be "
        "recorded, and what there is was converted",
        program.tokens.size() - 1, program.names[last->front().name]));
  }
  if (program.dropped > 0)
    remarks.push_back(fmt::format("the tracer lost {} records", program.dropped));
  if (program.uncalled > 0)
    remarks.push_back(
        fmt::format("of {} kernels and copies the call that launched them was not "
                    "recorded: they stand in no range",
                    program.uncalled));
  if (lost_heirs > 0)
    remarks.push_back(
        fmt::format("{} allocations from before the training step were freed in it "
                    "and have no successor: they are taken to stay",
                    lost_heirs));
  return Ok{};
}

Result<ActivityTrace> convert(const ProgramActivity& program, const std::string& name,
                              const ActivityOptions& options) {
  if (program.tokens.empty())
    return Error{.message = "the program did nothing on a GPU (would launch kernels or copies)"};
  const auto windows = find_windows(program, options.window);
  if (!windows) return windows.error();
  const RangeSpan window = windows->alike.back();
  if (window.last - window.first > kMostInOneTrace)
    return Error{ErrorCode::bad_usage,
                 fmt::format("{}: that is {} kernels and copies (would be at most {} in one trace: "
                             "--window range:NAME takes the instances of an NVTX range)",
                             windows->told, window.last - window.first, kMostInOneTrace)};
  const auto rows = program.launches.read(window.first, window.last - window.first);
  if (!rows) return rows.error();
  ActivityTrace made;
  Trace& trace = made.trace;
  trace.name = name.empty() ? program_name(program.command) : name;
  trace.lowering = "activities";
  trace.dropped_records = program.dropped;
  OpMaker maker(program, *windows, options.range_depth);
  const std::vector<std::uint32_t> op_of = maker.make(*rows, trace);
  if (Status status = store_times(program, *windows, *rows, op_of, trace); !status)
    return status.error();
  const std::size_t lost_heirs = add_allocations(program, window, op_of, trace);
  set_capabilities(program, maker, lost_heirs > 0, trace);
  if (Status status = add_remarks(program, *windows, lost_heirs, made.remarks); !status)
    return status.error();
  if (auto fault = find_fault(trace)) return std::move(*fault);
  return made;
}

}  // namespace

Status check_window(const std::string& window) {
  if (window.empty() || window == "pattern" || window == "whole" || !range_of(window).empty())
    return Ok{};
  return Error{ErrorCode::bad_usage,
               fmt::format("--window {} (would be pattern, whole or range:NAME)", window)};
}

Result<ActivityTrace> trace_from_activities(const ActivityInput& input, const std::string& name,
                                            const ActivityOptions& options) {
  if (Status status = check_window(options.window); !status) return status.error();
  const auto program = program_activity(input, range_of(options.window));
  if (!program) return program.error();
  auto made = convert(*program, name, options);
  if (!made && made.error().file.empty() && made.error().code == ErrorCode::bad_input)
    made.error().file = input.path.empty() ? input.name : input.path;
  return made;
}

}  // namespace superneurons
