#include <gtest/gtest.h>

#include <algorithm>

#include "ir/check.h"
#include "simulator/execute.h"
#include "simulator/model_backend.h"
#include "simulator/outcome.h"
#include "tests/random_trace.h"
#include "tests/simulator/support.h"

namespace superneurons {
namespace {

/// What the driver asked for, and what is then known to have ended before each command starts:
/// per stream, the number of the last such command.
class Recorder : public Backend {
 public:
  struct Entry {
    Command command;
    std::vector<Bytes> reads, writes;
    std::array<int, 3> before{-1, -1, -1};
  };
  std::vector<Entry> entries;
  std::vector<std::string> calls;
  std::size_t fail_at = ~std::size_t{0};  // call that fails

  Status prepare(const Trace&, const Program& program) override {
    recorded_.assign(program.events, -1);
    return call("prepare");
  }
  Status begin_training_step(int step) override { return call("begin " + std::to_string(step)); }
  Status wait(Stream stream, const Wait& wait) override {
    const int source = recorded_.at(wait.event);
    EXPECT_GE(source, 0) << "waits for an event that was never recorded";
    if (source >= 0) {
      EXPECT_EQ(entries[static_cast<std::size_t>(source)].command.stream, wait.source);
      EXPECT_NE(stream, wait.source);
      raise(known_[static_cast<std::size_t>(stream)], source);
    }
    return call("wait");
  }
  Status run(const Issue& issue) override { return add(issue, "run"); }
  Status copy(const Issue& issue) override { return add(issue, "copy"); }
  Status record(Stream stream, std::uint32_t event) override {
    EXPECT_EQ(entries.back().command.stream, stream);
    recorded_.at(event) = static_cast<int>(entries.size()) - 1;
    return call("record");
  }
  Status end_training_step(int step) override { return call("end " + std::to_string(step)); }
  Status sync() override { return call("sync"); }

 private:
  Status call(const std::string& what) {
    calls.push_back(what);
    if (calls.size() - 1 != fail_at) return Ok{};
    return Error{ErrorCode::device, "refused", "", 0, std::nullopt};
  }

  Status add(const Issue& issue, const std::string& what) {
    const auto stream = static_cast<std::size_t>(issue.command.stream);
    entries.push_back({issue.command,
                       {issue.reads.begin(), issue.reads.end()},
                       {issue.writes.begin(), issue.writes.end()},
                       known_[stream]});
    known_[stream][stream] = static_cast<int>(entries.size()) - 1;
    return call(what);
  }

  void raise(std::array<int, 3>& known, int source) {
    const Entry& entry = entries[static_cast<std::size_t>(source)];
    for (std::size_t i = 0; i < known.size(); ++i) known[i] = std::max(known[i], entry.before[i]);
    int& own = known[static_cast<std::size_t>(entry.command.stream)];
    own = std::max(own, source);
  }

  std::vector<int> recorded_;
  std::array<std::array<int, 3>, 3> known_{{{-1, -1, -1}, {-1, -1, -1}, {-1, -1, -1}}};
};

struct Touch {
  Space space;
  std::int64_t begin, end;
  bool writes;
};

std::vector<Touch> touches(const Trace& trace, const Recorder::Entry& entry) {
  std::vector<Touch> result;
  const auto add = [&](Space space, Bytes offset, Bytes bytes, bool writes) {
    if (offset != kAbsent && bytes.count > 0)
      result.push_back({space, offset.count, (offset + bytes).count, writes});
  };
  const Command& command = entry.command;
  if (command.kind == CommandKind::run) {
    const Op& op = trace.ops[command.subject];
    for (std::size_t i = 0; i < op.reads.size(); ++i)
      add(Space::device, entry.reads[i], op.reads[i].length, false);
    for (std::size_t i = 0; i < op.writes.size(); ++i)
      add(Space::device, entry.writes[i], op.writes[i].length, true);
  }
  const bool out = command.kind == CommandKind::copy_out;
  add(Space::device, command.device.offset, command.device.bytes, !out);
  if (command.kind == CommandKind::copy_out || command.kind == CommandKind::copy_in)
    add(Space::host, command.host.offset, command.host.bytes, out);
  return result;
}

bool conflict(const std::vector<Touch>& a, const std::vector<Touch>& b) {
  for (const Touch& x : a)
    for (const Touch& y : b)
      if (x.space == y.space && (x.writes || y.writes) && x.begin < y.end && y.begin < x.end)
        return true;
  return false;
}

/// Conflicting commands on different streams that nothing orders, the quadratic way.
int races(const Trace& trace, const Recorder& recorder) {
  std::vector<std::vector<Touch>> all;
  for (const auto& entry : recorder.entries) all.push_back(touches(trace, entry));
  int count = 0;
  for (std::size_t j = 0; j < all.size(); ++j)
    for (std::size_t i = 0; i < j; ++i) {
      const auto stream = static_cast<std::size_t>(recorder.entries[i].command.stream);
      if (recorder.entries[j].before[stream] < static_cast<int>(i) && conflict(all[i], all[j]))
        ++count;
    }
  return count;
}

Program program_of(const Trace& trace, const Plan& plan, const ProgramOptions& options = {}) {
  const Result<Placement> placement = place(trace, plan, plan.budget.device);
  EXPECT_TRUE(placement) << placement.error().message;
  return placement ? build_program(trace, plan, *placement, options) : Program{};
}

std::vector<Wait> waits_of(const WaitTable& table, std::size_t command) {
  return {table.waits.begin() + table.first[command],
          table.waits.begin() + table.first[command + 1]};
}

const Trace& reuse_trace() {
  static const Trace trace = mini(R"(
    tensor x 2000 input carry
    tensor a 2000 activation
    tensor b 2000 activation
    tensor c 2000 activation
    op f1 forward : x -> a @1000
    op f2 forward : x -> b @100
    op b1 backward : a b -> c @1000
  )");
  return trace;
}
constexpr auto kReusePlan = "f1 offload:a free:a f2 prefetch:a b1 free_host:a free:a free:b free:c";

// Commands: 0 f1, 1 offload a, 2 f2 (b in a's old range), 3 prefetch a, 4 b1.
TEST(Program, WaitsAreTheHazardsThatNothingElseImplies) {
  const Program program = program_of(reuse_trace(), plan_of(reuse_trace(), kReusePlan));
  ASSERT_EQ(program.commands.size(), 5U);
  EXPECT_EQ(program.events, 3U);  // of f1, offload, prefetch
  EXPECT_TRUE(waits_of(program.opening, 0).empty());
  ASSERT_EQ(waits_of(program.opening, 1).size(), 1U);
  EXPECT_EQ(waits_of(program.opening, 1)[0].source, Stream::compute);
  ASSERT_EQ(waits_of(program.opening, 2).size(), 1U);
  EXPECT_EQ(waits_of(program.opening, 2)[0].source, Stream::offload);
  EXPECT_EQ(waits_of(program.opening, 2)[0].cause, Cause::reuse);
  ASSERT_EQ(waits_of(program.opening, 3).size(), 1U);
  EXPECT_EQ(waits_of(program.opening, 3)[0].source, Stream::offload);
  ASSERT_EQ(waits_of(program.opening, 4).size(), 1U);
  EXPECT_EQ(waits_of(program.opening, 4)[0].source, Stream::prefetch);
  EXPECT_EQ(waits_of(program.opening, 4)[0].cause, Cause::prefetch);
  // Steady: a's host range and second device range were the step before's, but whoever made
  // offload a wait for f1 has put all of the step before behind it.
  EXPECT_EQ(program.steady.waits.size(), program.opening.waits.size());
}

// The next step writes s while its copy of the step before may still run: only the steady table
// waits, for an event whose command comes later in the plan.
TEST(Program, SteadyWaitsReachIntoTheStepBefore) {
  const Trace trace = mini(R"(
    tensor x 2000 input carry
    tensor s 2000 optimizer_state carry
    op u update : x -> s @1000
  )");
  Plan plan = plan_of(trace, "u offload:s free:s");
  plan.begin[1].place = Place::host;
  const Program program = program_of(trace, plan);
  EXPECT_TRUE(waits_of(program.opening, 0).empty());
  ASSERT_EQ(waits_of(program.steady, 0).size(), 1U);
  const Wait wait = waits_of(program.steady, 0)[0];
  EXPECT_EQ(wait.source, Stream::offload);
  EXPECT_EQ(program.commands[1].event, static_cast<std::int32_t>(wait.event));
}

TEST(Program, RerunsSkipWhatIsWrittenOnceAndDiscardsGoToScratch) {
  const Trace trace = mini(R"(
    tensor x 2000 input carry
    tensor n 1K buffer carry
    tensor a 2000 activation
    tensor m 1K saved
    tensor b 2000 activation
    op f1 forward fixed=n : x n -> a n m @1000 ws=4K
    op f2 forward : a m -> b @100
    op b1 backward : a b -> b @1000
  )");
  Plan plan = plan_of(trace, "f1 f2 free:a free:m f1 b1 free:a free:b");
  plan.steps[4].discard = {tensor_of(trace, "m")};
  ASSERT_FALSE(check(trace, plan)) << check(trace, plan)->detail;
  const Program program = program_of(trace, plan);
  const Command& first = program.commands[0];
  const Command& rerun = program.commands[2];
  EXPECT_FALSE(first.rerun);
  EXPECT_TRUE(rerun.rerun);
  EXPECT_EQ(rerun.device.bytes, 4_KiB);
  const Bytes* operands = program.operands.data() + rerun.first_operand;
  EXPECT_EQ(operands[1], kAbsent);  // read of n
  EXPECT_EQ(operands[3], kAbsent);  // write of n
  EXPECT_NE(operands[4], kAbsent);  // m, in scratch
  EXPECT_NE(program.operands[first.first_operand + 3], kAbsent);
}

TEST(Program, PoisonWritesFreedRangesOnTheComputeStream) {
  const Program program =
      program_of(reuse_trace(), plan_of(reuse_trace(), kReusePlan), {.poison_freed = true});
  ASSERT_EQ(program.commands.size(), 9U);
  EXPECT_EQ(program.commands[2].kind, CommandKind::poison);  // a, while it is being copied
  ASSERT_EQ(waits_of(program.opening, 2).size(), 1U);
  EXPECT_EQ(waits_of(program.opening, 2)[0].source, Stream::offload);
}

TEST(Driver, CallsTheBackendInPlanOrder) {
  const Program program = program_of(reuse_trace(), plan_of(reuse_trace(), kReusePlan));
  Recorder recorder;
  ASSERT_TRUE(execute(reuse_trace(), program, recorder));
  const std::vector<std::string> expected = {
      "prepare", "begin 0", "run",  "record", "wait", "copy", "record", "wait",
      "run",     "wait",    "copy", "record", "wait", "run",  "end 0",  "sync"};
  EXPECT_EQ(recorder.calls, expected);
}

TEST(Driver, SyncsAfterAnErrorAndReturnsIt) {
  const Program program = program_of(reuse_trace(), plan_of(reuse_trace(), kReusePlan));
  for (std::size_t fail = 1; fail < 15; ++fail) {
    Recorder recorder;
    recorder.fail_at = fail;
    const Status status = execute(reuse_trace(), program, recorder);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::device);
    EXPECT_EQ(recorder.calls.back(), "sync");
    EXPECT_EQ(recorder.calls.size(), fail + 2);
  }
}

TEST(Driver, StopsWhenAsked) {
  const Program program = program_of(reuse_trace(), plan_of(reuse_trace(), kReusePlan));
  const std::atomic<bool> stop = true;
  Recorder recorder;
  const Status status =
      execute(reuse_trace(), program, recorder, {.training_steps = 3, .stop = &stop});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::cancelled);
  EXPECT_TRUE(recorder.entries.empty());
  EXPECT_EQ(recorder.calls.back(), "sync");
}

DeviceProfile random_profile(TestRandom& random) {
  const auto pick = [&](std::size_t most) { return std::int64_t{random.below(most + 1)}; };
  const auto factor = [&] { return 0.1 * static_cast<double>(pick(9)); };
  const auto curve = [&] {
    return TransferCurve{{{{1}, {1 + pick(500)}}}, 1.0 + static_cast<double>(pick(3))};
  };
  DeviceProfile profile;
  profile.offload = curve();
  profile.prefetch = curve();
  profile.both_bytes_per_ns = static_cast<double>(pick(4));
  profile.memory_bound = {factor(), factor(), 2 * factor()};
  profile.launch_ns = {pick(100)};
  profile.copy_issue_ns = {pick(50)};
  profile.event_ns = {pick(20)};
  profile.gap_ns = {pick(50)};
  profile.wait_ns = {pick(50)};
  return profile;
}

/// Calls `test(trace, plan, random)` with random lawful plans, whose budget is what placement
/// needs.
template <class Test>
void for_random_plans(std::uint64_t cases, const Test& test) {
  for (std::uint64_t seed = 0; seed < cases && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const Trace trace = random_trace(seed, {.largest = 4_KiB});
    Plan plan = random_lawful_plan(trace, seed);
    plan.allocator =
        seed % 2 == 0 ? "first_fit" : "pytorch_caching";  // ranges next to each other at 512 B
    plan.budget = {1_GiB, 1_GiB};
    if (const Result<Bytes> arena = smallest_arena(trace, plan)) plan.budget.device = *arena;
    const Result<Placement> placement = place(trace, plan, plan.budget.device);
    ASSERT_TRUE(placement) << placement.error().message;
    plan.budget.host = placement->host_peak;
    TestRandom random{seed};
    test(trace, plan, random);
  }
}

TEST(Property, NoTwoConflictingCommandsAreUnordered) {
  int copies = 0;
  for_random_plans(200, [&](const Trace& trace, const Plan& plan, TestRandom& random) {
    const bool poison = random.chance(50);
    const Program program = program_of(trace, plan, {.poison_freed = poison});
    Recorder recorder;
    ASSERT_TRUE(execute(trace, program, recorder, {.training_steps = 3}));
    EXPECT_EQ(races(trace, recorder), 0);
    for (const Command& command : program.commands) copies += command.stream != Stream::compute;
  });
  EXPECT_GT(copies, 1000);
}

// The oracle itself can fail: without its waits a program has races.
TEST(Property, RacesAreSeenWhereWaitsLack) {
  Program program = program_of(reuse_trace(), plan_of(reuse_trace(), kReusePlan));
  std::fill(program.opening.first.begin(), program.opening.first.end(), 0);
  Recorder recorder;
  ASSERT_TRUE(execute(reuse_trace(), program, recorder));
  EXPECT_GT(races(reuse_trace(), recorder), 0);
}

TEST(Property, StepIsComputePlusStallsAndNeverBelowTheBound) {
  for_random_plans(300, [](const Trace& trace, const Plan& plan, TestRandom& random) {
    const DeviceProfile profile = random_profile(random);
    const Result<Outcome> outcome = evaluate(trace, plan, profile);
    ASSERT_TRUE(outcome) << outcome.error().message;
    Nanoseconds sum = outcome->compute_ns;
    for (const Nanoseconds stall : outcome->stall_ns) {
      EXPECT_GE(stall, 0_ns);
      sum += stall;
    }
    EXPECT_EQ(outcome->step_ns, sum);
    EXPECT_GE(outcome->step_ns, outcome->bound_ns);
  });
}

// Where streams do not disturb each other, all is sums and maxima, which only grow.
TEST(Property, HalfTheBandwidthIsNeverFaster) {
  for_random_plans(300, [](const Trace& trace, const Plan& plan, TestRandom& random) {
    DeviceProfile profile = random_profile(random);
    profile.memory_bound = {};
    profile.both_bytes_per_ns = 0;
    DeviceProfile slow = profile;
    for (TransferCurve* curve : {&slow.offload, &slow.prefetch}) {
      curve->bytes_per_ns /= 2;
      for (auto& point : curve->points) point.ns = point.ns * 2;
    }
    EXPECT_LE(simulate(trace, plan, profile)->step_ns, simulate(trace, plan, slow)->step_ns);
  });
}

TEST(Property, SimulationIsDeterministic) {
  for_random_plans(20, [](const Trace& trace, const Plan& plan, TestRandom& random) {
    const DeviceProfile profile = random_profile(random);
    const Result<Timeline> one = simulate(trace, plan, profile, {.keep_spans = true});
    const Result<Timeline> two = simulate(trace, plan, profile, {.keep_spans = true});
    EXPECT_EQ(one->step_ns, two->step_ns);
    EXPECT_EQ(one->stall_ns, two->stall_ns);
    ASSERT_EQ(one->spans.size(), two->spans.size());
    for (std::size_t i = 0; i < one->spans.size(); ++i) {
      EXPECT_EQ(one->spans[i].start, two->spans[i].start);
      EXPECT_LE(one->spans[i].start, one->spans[i].end);
    }
  });
}

}  // namespace
}  // namespace superneurons
