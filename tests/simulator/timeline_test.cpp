// Timelines worked out by hand. Copies move 1 byte per ns; times in ns.
#include <gtest/gtest.h>

#include "ir/check.h"
#include "simulator/execute.h"
#include "simulator/model_backend.h"
#include "simulator/outcome.h"
#include "tests/simulator/support.h"

namespace superneurons {
namespace {

Nanoseconds lost(const Timeline& timeline, Cause cause) {
  return timeline.stall_ns[static_cast<std::size_t>(cause)];
}

Timeline simulated(const Trace& trace, const Plan& plan, const DeviceProfile& profile,
                   const ModelOptions& options = {}) {
  Result<Timeline> timeline = simulate(trace, plan, profile, options);
  EXPECT_TRUE(timeline) << timeline.error().message;
  return timeline ? *timeline : Timeline{};
}

/// Spans of the very first training step by command name: "run:0", "copy_out:1".
Span span_of(const Trace& trace, const Plan& plan, const DeviceProfile& profile, CommandKind kind,
             std::uint32_t subject, Timeline* timeline = nullptr) {
  const Result<Placement> placement = place(trace, plan, plan.budget.device);
  EXPECT_TRUE(placement);
  const Program program = build_program(trace, plan, *placement);
  const auto backend = make_model_backend(profile, {.keep_spans = true});
  EXPECT_TRUE(execute(trace, program, *backend));
  const Timeline result = backend->timeline();
  if (timeline != nullptr) *timeline = result;
  for (const Span& span : result.spans)
    if (program.commands[span.command].kind == kind &&
        program.commands[span.command].subject == subject)
      return span;
  ADD_FAILURE() << "no such command";
  return {};
}

Trace chain() {
  return mini(R"(
    tensor x 2000 input carry
    tensor a 2000 activation
    tensor b 2000 activation
    op f1 forward : x -> a @100
    op f2 forward : a -> b @200
    op f3 forward : b -> a @300
  )");
}

Trace hourglass(const std::string& f3) {
  return mini(R"(
    tensor x 2000 input carry
    tensor a 2000 activation
    tensor b 2000 activation
    tensor c 2000 activation
    tensor d 2000 activation
    op f1 forward : x -> a @1000
    op f2 forward : a -> b @3000
    op f3 forward : b -> c )" +
              f3 + R"(
    op b1 backward : a c -> d @1000
  )");
}
constexpr auto kHourglassPlan =
    "f1 offload:a f2 free:a prefetch:a f3 b1 free_host:a free:a free:b free:c free:d";

TEST(Timeline, SerialChainIsTheSumOfItsRunsAndGaps) {
  const Trace trace = chain();
  const Plan plan = plan_of(trace, "f1 f2 f3 free:a free:b");
  DeviceProfile profile = plain_profile();
  EXPECT_EQ(simulated(trace, plan, profile).step_ns, 600_ns);
  profile.gap_ns = 10_ns;
  const Timeline timeline = simulated(trace, plan, profile);
  EXPECT_EQ(timeline.step_ns, 630_ns);
  EXPECT_EQ(timeline.compute_ns, 600_ns);
  EXPECT_EQ(lost(timeline, Cause::gap), 30_ns);
}

/// x is fed, s lives on the host: it comes, is updated, and leaves.
struct Lesson {
  Trace trace = mini(R"(
    tensor x 2000 input carry
    tensor s 2000 optimizer_state carry
    tensor a 2000 activation
    op f1 forward : x -> a @100
    op u update : s -> s @100
  )");
  Plan plan = plan_of(trace, "prefetch:s f1 u offload:s free:s free:a");
  Lesson() { plan.begin[1] = {Place::host}; }
};

// Without a feed: prefetch 0-2000, f1 0-100, u 2000-2100, offload 2100-4100. With it: x 0-1000, f1
// 1000-1100, prefetch 1000-3000, u 3000-3100, offload 3100-5100; only then comes the next x.
TEST(Timeline, InputsComeBetweenTwoTrainingSteps) {
  const Lesson lesson;
  EXPECT_EQ(simulated(lesson.trace, lesson.plan, plain_profile()).step_ns, 4100_ns);
  const Timeline fed =
      simulated(lesson.trace, lesson.plan, plain_profile(), {.keep_spans = true, .fed = {1000_B}});
  EXPECT_EQ(fed.step_ns, 5100_ns);
  EXPECT_EQ(fed.compute_ns, 1200_ns);
  EXPECT_EQ(fed.spans.size(), 4U);
}

// f1 0-1000, offload a 1000-3000, f2 1000-4000, prefetch a 4000-6000 (its range is f2's until
// then), f3 4000-7000, b1 7000-8000.
TEST(Timeline, PrefetchBehindALongOpIsHidden) {
  const Trace trace = hourglass("@3000");
  const Timeline timeline = simulated(trace, plan_of(trace, kHourglassPlan), plain_profile());
  EXPECT_EQ(timeline.step_ns, 8000_ns);
  EXPECT_EQ(timeline.compute_ns, 8000_ns);
}

// As above, but f3 4000-4500: b1 waits until 6000.
TEST(Timeline, LatePrefetchStallsForWhatIsMissing) {
  const Trace trace = hourglass("@500");
  const Timeline timeline = simulated(trace, plan_of(trace, kHourglassPlan), plain_profile());
  EXPECT_EQ(timeline.step_ns, 7000_ns);
  EXPECT_EQ(timeline.compute_ns, 5500_ns);
  EXPECT_EQ(lost(timeline, Cause::prefetch), 1500_ns);
}

// Each wait that blocks costs 50: offload 1050-3050, prefetch 4050-6050, b1 6100-7100; of the 1600
// before b1, 1550 are the copy's and 50 the wait's.
TEST(Timeline, BlockingWaitsCostTheirLatency) {
  const Trace trace = hourglass("@500");
  DeviceProfile profile = plain_profile();
  profile.wait_ns = 50_ns;
  const Timeline timeline = simulated(trace, plan_of(trace, kHourglassPlan), profile);
  EXPECT_EQ(timeline.step_ns, 7100_ns);
  EXPECT_EQ(lost(timeline, Cause::prefetch), 1550_ns);
  EXPECT_EQ(lost(timeline, Cause::gap), 50_ns);
}

// f1 0-1000, offload a 1000-3000; f2 writes b into a's range, so it waits until 3000 (reuse 2000)
// and ends at 3100; prefetch a 3000-5000; b1 5000-6000 (prefetch 1900).
TEST(Timeline, ReusingARangeThatIsStillBeingCopiedStalls) {
  const Trace trace = mini(R"(
    tensor x 2000 input carry
    tensor a 2000 activation
    tensor b 2000 activation
    tensor c 2000 activation
    op f1 forward : x -> a @1000
    op f2 forward : x -> b @100
    op b1 backward : a b -> c @1000
  )");
  const Plan plan =
      plan_of(trace, "f1 offload:a free:a f2 prefetch:a b1 free_host:a free:a free:b free:c");
  const Timeline timeline = simulated(trace, plan, plain_profile());
  EXPECT_EQ(timeline.step_ns, 6000_ns);
  EXPECT_EQ(timeline.compute_ns, 2100_ns);
  EXPECT_EQ(lost(timeline, Cause::reuse), 2000_ns);
  EXPECT_EQ(lost(timeline, Cause::prefetch), 1900_ns);
}

struct TwoCopies {
  Trace trace = mini(R"(
    tensor x 2000 input carry
    tensor p 2000 parameter carry
    tensor a 2000 activation
    tensor b 2000 activation
    tensor c 2000 activation
    op f1 forward : x -> a @1000
    op f2 forward : x -> b @5000
    op b1 backward : a b p -> c @100
  )");
  Plan plan = plan_of(trace,
                      "f1 offload:a prefetch:p f2 free:a prefetch:a b1 free_host:a free:a free:b "
                      "free:c free:p");
  TwoCopies() { plan.begin[1].place = Place::host; }
};

// prefetch p moves 1000 bytes until offload a joins it at 1000; then half a byte per ns each: p
// ends at 3000, and a, which has moved 1000 by then, at 4000.
TEST(Timeline, CopiesInBothDirectionsShareTheLink) {
  const TwoCopies two;
  DeviceProfile profile = plain_profile();
  profile.both_bytes_per_ns = 1;
  const Span in = span_of(two.trace, two.plan, profile, CommandKind::copy_in, 1);
  const Span out = span_of(two.trace, two.plan, profile, CommandKind::copy_out, 2);
  EXPECT_EQ(in.start, 0_ns);
  EXPECT_EQ(in.end, 3000_ns);
  EXPECT_EQ(out.start, 1000_ns);
  EXPECT_EQ(out.end, 4000_ns);
}

// The link is full duplex: p 0-2000, a 1000-3000. f1 runs at half speed beside p, 0-2000, so a
// moves out from 2000 to 4000 and back in until 6000; f2 does 2000 of its 5000 in those 4000 ns and
// the rest in 3000.
TEST(Timeline, KernelsSlowDownWhileBytesMove) {
  const TwoCopies two;
  DeviceProfile profile = plain_profile();
  profile.memory_bound = {1.0, 1.0, 3.0};
  Timeline timeline;
  const Span f1 = span_of(two.trace, two.plan, profile, CommandKind::run, 0, &timeline);
  const Span f2 = span_of(two.trace, two.plan, profile, CommandKind::run, 1);
  EXPECT_EQ(f1.end, 2000_ns);
  EXPECT_EQ(f2.start, 2000_ns);
  EXPECT_EQ(f2.end, 9000_ns);
  EXPECT_EQ(lost(timeline, Cause::interference), 3000_ns);
}

TEST(Timeline, ArithmeticBoundKernelsTakeTheirOwnFactor) {
  TwoCopies two;
  DeviceProfile profile = plain_profile();
  profile.memory_bound = {1.0, 1.0, 3.0};
  profile.flops_per_ns = 1;
  profile.memory_bytes_per_ns = 1;
  two.trace.ops[0].flops = 1000;
  two.trace.ops[0].bytes_moved = 10_B;
  EXPECT_EQ(span_of(two.trace, two.plan, profile, CommandKind::run, 0).end, 1000_ns);
}

TEST(Timeline, SlowHostBoundsTheStep) {
  const Trace trace = chain();
  DeviceProfile profile = plain_profile();
  profile.launch_ns = 500_ns;
  const Timeline timeline = simulated(trace, plan_of(trace, "f1 f2 f3 free:a free:b"), profile);
  EXPECT_EQ(timeline.step_ns, 1500_ns);
  EXPECT_EQ(lost(timeline, Cause::host), 900_ns);
}

TEST(Timeline, FastHostRunsAheadAcrossTrainingSteps) {
  const Trace trace = chain();
  DeviceProfile profile = plain_profile();
  profile.launch_ns = 199_ns;  // 597 a step for 600 of work; f1 alone would be too short
  EXPECT_EQ(simulated(trace, plan_of(trace, "f1 f2 f3 free:a free:b"), profile).step_ns, 600_ns);
}

// The host waits for f2, so f3 is issued 100 after its end and cannot hide that.
TEST(Timeline, ProgramClockTakesTheProgramsHostTimes) {
  Trace trace = chain();
  for (Op& op : trace.ops) op.host_ns = 100_ns;
  trace.ops[1].host_sync_ns = 1_ns;
  const Timeline timeline = simulated(trace, plan_of(trace, "f1 f2 f3 free:a free:b"),
                                      plain_profile(), {.clock = Clock::program});
  EXPECT_EQ(timeline.step_ns, 700_ns);
  EXPECT_EQ(lost(timeline, Cause::host), 100_ns);
}

// Recorded are 600 of work and, in a program of single launches, 3 gaps of 50. Of the 300 of f3 two
// kernels take 40 and 60: the traced host was 200 late with the second, an untraced one is not, so
// that only a gap of 50 lies between. One launch of all three has one gap before it.
TEST(Timeline, ProgramClockTakesTheDeviceAsIfNobodyTraced) {
  Trace trace = chain();
  DeviceProfile profile = plain_profile();
  profile.gap_ns = 50_ns;
  const Plan plan = plan_of(trace, "f1 f2 f3 free:a free:b");
  const auto step = [&](Clock clock) {
    const Timeline timeline = simulated(trace, plan, profile, {.clock = clock});
    EXPECT_EQ(timeline.step_ns, time_bound(trace, profile, plan.budget, clock));
    return timeline.step_ns;
  };
  EXPECT_EQ(step(Clock::program), 750_ns);
  trace.ops[2].kernels = {{"k", 40_ns}, {"l", 60_ns}};
  EXPECT_EQ(step(Clock::program), 600_ns);
  EXPECT_EQ(step(Clock::replay), 750_ns);
  trace.ops[1].kernels = {{"k", 120_ns}, {"l", 60_ns}};  // side by side: no more than recorded
  EXPECT_EQ(step(Clock::program), 600_ns);
  for (Op& op : trace.ops) op.launch_group = 7;
  EXPECT_EQ(step(Clock::program), 500_ns);
  EXPECT_EQ(step(Clock::replay), 750_ns) << "a replay launches them one by one";
}

// u 0-1000, offload s 1000-3000: the next u writes the same range and waits until then.
TEST(Timeline, CopiesThatOutliveTheLastKernelAreTheTail) {
  const Trace trace = mini(R"(
    tensor x 2000 input carry
    tensor s 2000 optimizer_state carry
    op u update : x -> s @1000
  )");
  Plan plan = plan_of(trace, "u offload:s free:s");
  plan.begin[1].place = Place::host;
  const Timeline timeline = simulated(trace, plan, plain_profile());
  EXPECT_EQ(timeline.step_ns, 3000_ns);
  EXPECT_EQ(lost(timeline, Cause::tail), 2000_ns);
  Timeline single;
  span_of(trace, plan, plain_profile(), CommandKind::run, 0, &single);
  EXPECT_EQ(single.step_ns, 3000_ns);
  EXPECT_EQ(lost(single, Cause::tail), 2000_ns);
}

TEST(Timeline, UnlawfulAndUnplaceablePlansAreErrors) {
  const Trace trace = chain();
  const Result<Timeline> unlawful =
      simulate(trace, plan_of(trace, "f1 free:a f2 f3 free:a free:b"), plain_profile());
  ASSERT_FALSE(unlawful);
  EXPECT_EQ(unlawful.error().code, ErrorCode::unlawful);
  // 3 tensors of 2000 bytes are 6000 live bytes, but three ranges of 2 KiB are more.
  const Result<Timeline> misfit =
      simulate(trace, plan_of(trace, "f1 f2 f3 free:a free:b", {6000_B, 0_B}), plain_profile());
  ASSERT_FALSE(misfit);
  EXPECT_EQ(misfit.error().code, ErrorCode::does_not_fit);
}

// b2's operands fill the budget of 5000, and b1 still needs a (2000), which f1 made before. So a
// comes in by a copy of 2000 ns, or by a rerun of f1 (5 ns), or, as far as the bound can tell, part
// and part: r bytes rerun, where 2000 - r = 245 + 5 * r / 2000, i.e. 249.37.
TEST(Bound, CountsWhatTheBudgetCannotHold) {
  const std::string head = R"(
    tensor x 1000 input carry
    tensor a 2000 activation
    tensor b 2000 activation
    tensor c 2000 activation
    tensor g2 1000 activation_gradient
    tensor g1 1000 activation_gradient
  )";
  const std::string tail = R"( : x -> a @5
    op f2 forward : a -> b @100
    op f3 forward : b -> c @100
    op b2 backward : b c -> g2 @20
    op b1 backward : g2 a -> g1 @20
  )";
  const Trace trace = mini(head + "op f1 forward" + tail);
  const Trace once = mini(head + "op f1 forward once" + tail);
  const DeviceProfile profile = plain_profile();
  EXPECT_EQ(time_bound(trace, profile, {}), 245_ns);
  EXPECT_EQ(time_bound(trace, profile, {7000_B, 0_B}), 245_ns);
  EXPECT_EQ(time_bound(trace, profile, {5000_B, 1_MiB}), 249_ns);
  EXPECT_EQ(time_bound(trace, profile, {5000_B, 0_B}), 250_ns);
  EXPECT_EQ(time_bound(once, profile, {5000_B, 1_MiB}), 2000_ns);
}

// The fast choice needs a workspace that the budget does not hold.
TEST(Bound, LeavesOutChoicesThatDoNotFit) {
  const Trace trace = mini(R"(
    tensor x 1000 input carry
    tensor y 1000 activation
    op f forward : x -> y @10 ws=4K | @30
  )");
  EXPECT_EQ(time_bound(trace, plain_profile(), {6096_B, 0_B}), 10_ns);
  EXPECT_EQ(time_bound(trace, plain_profile(), {6095_B, 0_B}), 30_ns);
}

}  // namespace
}  // namespace superneurons
