// Commands as policies: the protocol, and everything that a command can do wrong.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "ir/plan_io.h"
#include "policies/child.h"
#include "tests/policies/fixtures.h"

namespace superneurons {
namespace {

Trace trace_with_padding() {
  Trace trace = policy_traces()[0].trace;
  trace.origin = std::string(1 << 20, 'x');  // more than a pipe holds
  return trace;
}

std::string error_of(const std::string& policy, ErrorCode code = ErrorCode::bad_input) {
  const Result<Plan> plan = plan_for(trace_with_padding(), request_for(policy, 1_GiB));
  if (plan) return "no error";
  EXPECT_EQ(plan.error().code, code) << plan.error().message;
  return plan.error().message;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A command that prints what liveness would plan.
std::string printing(const Trace& trace) {
  const Result<Plan> plan = plan_for(trace, request_for("liveness", 1_GiB));
  return "cat > /dev/null; cat <<'END'\n" + format_plan(*plan) + "END";
}

TEST(ExecPolicy, ItsPlanIsCheckedAndReturned) {
  const Trace trace = policy_traces()[0].trace;
  const std::string policy = "exec:" + printing(trace);
  const Result<Plan> plan = plan_for(trace, request_for(policy, 1_GiB));
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->policy, policy);
  const Result<Plan> liveness = plan_for(trace, request_for("liveness", 1_GiB));
  EXPECT_EQ(plan->steps.size(), liveness->steps.size());
}

TEST(ExecPolicy, APlanThatDoesNotFitIsAnAnswer) {
  const Trace trace = policy_traces()[0].trace;
  const Result<Plan> plan = plan_for(trace, request_for("exec:" + printing(trace), 64_KiB));
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code, ErrorCode::does_not_fit);
  EXPECT_EQ(plan.error().shortage->smallest_budget, peak_of(trace, "liveness"));
}

TEST(ExecPolicy, GetsTraceProfileAndBudget) {
  // The last two lines of standard input come back as the complaint of a failing command.
  const std::string message = error_of("exec:tail -n 1 >&2; exit 3");
  EXPECT_TRUE(contains(message, "failed with exit status 3"));
  EXPECT_TRUE(contains(message, R"("budget":{"device":1073741824,"host":1073741824})")) << message;
  EXPECT_TRUE(contains(message, R"("allocator":"first_fit")"));
  EXPECT_TRUE(contains(error_of("exec:tail -n 2 | head -n 1 >&2; exit 3"), "slow_link"));
  EXPECT_TRUE(contains(error_of("exec:head -n 1 | cut -c 1-60 >&2; exit 3"), "superneurons"));
}

TEST(ExecPolicy, FailuresNameCommandStatusAndLastComplaint) {
  EXPECT_EQ(error_of("exec:echo no idea >&2; echo more >&2; exit 7"),
            "policy command 'echo no idea >&2; echo more >&2; exit 7' failed with exit status 7 "
            "(it says: more)");
  EXPECT_TRUE(contains(error_of("exec:kill -SEGV $$"), "was killed by signal 11"));
  EXPECT_TRUE(contains(error_of("exec:/no/such/program"), "failed with exit status 127"));
  EXPECT_TRUE(contains(error_of("exec:cat > /dev/null"), "its output is no plan"));
  EXPECT_TRUE(contains(error_of("exec:echo nonsense"), "line 1 of its output is no plan"));
  EXPECT_TRUE(contains(error_of("exec:true"), "is no plan"));  // does not read its input
}

TEST(ExecPolicy, SurvivesACommandThatClosesItsInput) {
  struct sigaction before {};
  sigaction(SIGPIPE, nullptr, &before);
  EXPECT_EQ(before.sa_handler, SIG_DFL);
  EXPECT_TRUE(contains(error_of("exec:exec <&-; sleep 0.05; echo x"), "is no plan"));
}

TEST(ExecPolicy, AHangingCommandIsKilledWithItsChildren) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(contains(error_of("exec,timeout=0.2:sleep 60 & sleep 60"), "no plan within 0.2 s"));
  EXPECT_TRUE(contains(error_of("exec,timeout=0.2:exec >&- 2>&-; sleep 60"), "no plan within"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(ExecPolicy, WhatTheShellLeavesInTheBackgroundIsNotWaitedFor) {
  const auto start = std::chrono::steady_clock::now();
  const Result<ChildOutcome> outcome = run_child("sleep 30 & echo plan; echo why >&2", "", {});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->end, ChildOutcome::End::exited);
  EXPECT_EQ(outcome->output, "plan\n");
  EXPECT_EQ(outcome->last_error, "why");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(ExecPolicy, AllThatIsInThePipeWhenTheShellExitsIsRead) {
  const Result<ChildOutcome> outcome = run_child("head -c 300000 /dev/zero | tr '\\0' x", "", {});
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->output.size(), 300000U);
}

TEST(ExecPolicy, PipelinesOfTheCommandDieOfSigpipeThoughTheCallerIgnoresIt) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &before);
  // Where SIGPIPE is ignored, the shell's own echo tells of a broken pipe instead.
  const Result<ChildOutcome> outcome =
      run_child("(sleep 0.05; echo x; echo survived >&2) | true; sleep 0.2", "", {});
  sigaction(SIGPIPE, &before, nullptr);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->last_error, "");
}

TEST(ExecPolicy, OutputIsCapped) {
  ChildLimits limits;
  limits.output = 1000;
  const Result<ChildOutcome> outcome = run_child("yes", "", limits);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->end, ChildOutcome::End::too_much_output);
  EXPECT_EQ(outcome->output.size(), 1001U);
}

TEST(ExecPolicy, MuchComplaintDoesNotBlock) {
  ChildLimits limits;
  const Result<ChildOutcome> outcome =
      run_child("yes complaint | head -c 1000000 >&2; echo done", "", limits);
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->output, "done\n");
  EXPECT_EQ(outcome->last_error, "complaint");
}

TEST(ExecPolicy, StopTokenKillsTheCommand) {
  std::atomic<bool> stop{false};
  ChildLimits limits;
  limits.stop = &stop;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  const Result<ChildOutcome> outcome = run_child("sleep 60", "", limits);
  later.join();
  ASSERT_TRUE(outcome);
  EXPECT_EQ(outcome->end, ChildOutcome::End::stopped);
}

TEST(ExecPolicy, MalformedRequestsAreRefused) {
  for (const char* policy : {"exec", "exec:", "exec,timeout=:true", "exec,timeout=-1:true",
                             "exec,timeout=nan:true", "exec,time=1:true", "liveness+exec:true"})
    EXPECT_NE(error_of(policy, ErrorCode::bad_usage), "no error") << policy;
}

TEST(ExecPolicy, APlanForAnotherTraceIsRefused) {
  const std::string command = printing(policy_traces()[1].trace);
  EXPECT_TRUE(contains(error_of("exec:" + command), "with a plan for trace"));
}

}  // namespace
}  // namespace superneurons
