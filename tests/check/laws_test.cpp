// Every law of the checker: a plan that breaks it is refused with law, plan step, op and tensor.
#include <gtest/gtest.h>

#include <set>

#include "ir/check.h"
#include "tests/check/mini_plan.h"
#include "tests/mini_trace.h"

namespace superneurons {
namespace {

/// A layer with statistics, an activation in place, a loss, a random op that runs once, a gradient
/// written in two halves, and an update. Homes take 14 bytes.
Trace training() {
  Trace trace = mini(R"(
    tensor x 8 input carry
    tensor w 4 parameter carry
    tensor mean 2 buffer carry
    tensor y 8 activation
    tensor m 2 saved
    tensor z 32 activation
    tensor r 1 saved
    tensor g 4 gradient
    tensor d 1 temporary
    op conv forward fixed=mean : x w mean -> y m mean ws=16 | ws=0
    op relu forward : y -> y
    op loss forward : y -> z
    op sample forward once random : z -> z r
    op back backward : z y m r -> g[0:2]
    op more backward : z -> g[2:4]
    op decay backward : w -> d
    op step update once : w g -> w
  )");
  trace.ops[0].choices[1].omits = {tensor_id(trace, "m")};
  return trace;
}

const std::string kForward = "run conv\nrun relu\nrun loss\nrun sample\n";  // plan steps 0 to 3
const std::string kRuns = kForward + "run back\nrun more\nrun decay\nrun step\n";  // 0 to 7
const std::string kFrees = "free y\nfree m\nfree z\nfree r\nfree d\n";             // 8 to 12
const std::string kComplete = kRuns + kFrees + "free g\n";                         // 13

/// Gradients that are a new storage in each training step.
Trace new_gradients() {
  return mini(R"(
    tensor w 4 parameter carry
    tensor old 4 gradient
    tensor new 4 gradient
    carry new old
    op step update once : w old -> w
    op back backward : w -> new
  )");
}

struct Case {
  std::string title;
  std::string plan;
  Law law;
  std::uint32_t step;
  std::string op;
  std::string tensor;
};

std::vector<Case> broken_reads() {
  return {
      {"op read what never was on the device", "run loss", Law::use_before_ready, 0, "loss", "y"},
      {"op read what is still on the host", "begin w host\nrun conv", Law::use_before_ready, 0,
       "conv", "w"},
      {"op read what was freed", "run conv\nrun relu\nfree y\nrun loss", Law::use_after_free, 3,
       "loss", "y"},
      {"rerun in place of what was freed", "run conv\nrun relu\nfree y\nrun relu",
       Law::use_after_free, 3, "relu", "y"},
      {"op ran before the op in place that it follows", "run conv\nrun loss",
       Law::first_run_out_of_order, 1, "loss", "y"},
      {"update ran before half of its gradient", kForward + "run back\nrun decay\nrun step",
       Law::first_run_out_of_order, 6, "step", "g"},
      {"update ran before a reader of the old parameter",
       kForward + "run back\nrun more\nrun step\nrun decay", Law::first_run_out_of_order, 6, "step",
       "w"},
      {"rerun took a tensor back to an older version", "run conv\nrun relu\nrun conv\nrun loss",
       Law::stale_version, 3, "loss", "y"},
      {"host copy was older than the last write",
       "run conv\noffload y\nrun relu\nfree y\nprefetch y\nrun loss", Law::stale_host_copy, 4,
       "loss", "y"},
      {"old host copy served a rerun, and then nobody redid the rest",
       "run conv\noffload y\nrun relu\nrun loss\nfree y\nprefetch y\nrun loss",
       Law::stale_host_copy, 5, "loss", "y"},
  };
}

std::vector<Case> broken_copies() {
  return {
      {"prefetch of what was never offloaded", "run conv\nrun relu\nfree y\nprefetch y",
       Law::prefetch_without_host_copy, 3, "", "y"},
      {"prefetch after the host copy went", "run conv\noffload y\nfree y\nfree_host y\nprefetch y",
       Law::prefetch_without_host_copy, 4, "", "y"},
      {"prefetch of what is there", "run conv\noffload y\nprefetch y", Law::prefetch_of_resident, 2,
       "", "y"},
      {"offload of what is not there", "run conv\nfree y\noffload y", Law::offload_of_absent, 2, "",
       "y"},
      {"free twice", "run conv\nfree y\nfree y", Law::free_of_absent, 2, "", "y"},
      {"free of a host copy that is not there", "run conv\nfree_host y", Law::free_host_of_absent,
       1, "", "y"},
  };
}

std::vector<Case> lost_values() {
  return {
      {"parameter freed without a copy", "run conv\nfree w", Law::lost_tensor, 1, "", "w"},
      {"only host copy of a parameter freed", "begin w host\nfree_host w", Law::lost_tensor, 0, "",
       "w"},
      {"updated parameter freed with an old host copy", "offload w\n" + kRuns + "free w",
       Law::lost_tensor, 9, "", "w"},
      {"result of an op that runs once freed", kForward + "free z", Law::lost_tensor, 4, "", "z"},
      {"result of an op that runs once overwritten by a rerun", kForward + "run loss",
       Law::lost_tensor, 4, "loss", "z"},
      {"needed host copy overwritten by an older version",
       kForward + "offload z\nrun loss\noffload z", Law::lost_tensor, 6, "", "z"},
      {"statistics freed after their only update", "run conv\nfree mean", Law::lost_tensor, 1, "",
       "mean"},
      {"parameter begins nowhere", "begin w nowhere\nrun conv", Law::lost_tensor, 0, "", "w"},
      {"input for the next training step freed", kRuns + "free x", Law::lost_tensor, 8, "", "x"},
      {"choice omits what backward reads", "run conv 1", Law::lost_tensor, 0, "conv", "m"},
  };
}

std::vector<Case> broken_runs() {
  return {
      {"choice that the op does not have", "run conv 2", Law::well_formed, 0, "conv", ""},
      {"op never ran", kForward + "run back\nrun more\nrun decay\n" + kFrees + "free g",
       Law::op_missing, 13, "step", ""},
      {"update ran twice", kRuns + "run step", Law::double_update, 8, "step", ""},
      {"op that must run once ran again", kForward + "run sample", Law::forbidden_rerun, 4,
       "sample", ""},
      {"rerun in place on its own result", "run conv\nrun relu\nrun relu",
       Law::rerun_without_old_version, 2, "relu", "y"},
      {"rerun of a partial write on its own result", kForward + "run back\nrun more\nrun more",
       Law::rerun_without_old_version, 6, "more", "g"},
      {"rerun with another choice", "run conv\nrun conv 1", Law::two_choices, 1, "conv", ""},
      {"discard of what the op does not write", "run conv 0 discard z", Law::bad_discard, 0, "conv",
       "z"},
      {"discard twice", "run conv 0 discard y y", Law::bad_discard, 0, "conv", "y"},
      {"discard of what the choice omits", "run conv 1 discard m", Law::bad_discard, 0, "conv",
       "m"},
      {"discard of statistics that the rerun skips", "run conv\nrun conv 0 discard mean",
       Law::bad_discard, 1, "conv", "mean"},
      {"discard of an update in place", "run conv\nrun relu 0 discard y", Law::bad_discard, 1,
       "relu", "y"},
      {"discard of what can never be made again",
       "run conv\nrun relu\nrun loss\nrun sample 0 discard r", Law::bad_discard, 3, "sample", "r"},
      {"discard of what is read before it is made again",
       "run conv 0 discard m\nrun relu\nrun loss\nrun sample\nrun back", Law::bad_discard, 0,
       "conv", "m"},
      {"rerun discarded what it was to bring back",
       "run conv\nfree m\nrun relu\nrun loss\nrun sample\nrun conv 0 discard y m\nrun back",
       Law::bad_discard, 5, "conv", "m"},
  };
}

std::vector<Case> broken_budgets() {
  return {
      {"homes are a byte too many", "budget 13", Law::over_budget, 0, "", "mean"},
      {"workspace is a byte too large", "budget 39\nrun conv", Law::over_budget, 0, "conv", ""},
      {"output is a byte too large", "budget 55\n" + kForward, Law::over_budget, 2, "loss", ""},
      {"scratch for discarded outputs is a byte too large",
       "budget 82\n" + kForward + "run conv 0 discard y m", Law::over_budget, 4, "conv", ""},
      {"prefetch is a byte too large",
       "budget 56\nrun conv\nrun relu\noffload m\nfree m\nrun loss\nrun sample\nprefetch m",
       Law::over_budget, 6, "", "m"},
      {"free gave a home back", "budget 55\nrun conv\nrun relu\noffload w\nfree w\nrun loss",
       Law::over_budget, 4, "loss", ""},
      {"host is a byte too small", "budget 99 host 7\nrun conv\noffload m\noffload w\noffload mean",
       Law::over_host_budget, 3, "", "mean"},
      {"freeing a host home gave nothing back",
       "begin w host\nbudget 99 host 5\nprefetch w\nfree_host w\nrun conv\noffload m",
       Law::over_host_budget, 3, "", "m"},
      {"host is a byte too small for the start", "budget 99 host 3\nbegin w host",
       Law::over_host_budget, 0, "", "w"},
  };
}

std::vector<Case> broken_ends() {
  const std::string on_host = "begin w host\nprefetch w\n";
  return {
      {"activation stayed on the device", kRuns + kFrees, Law::leftover_at_end, 13, "", "g"},
      {"activation stayed on the host", "run conv\noffload y\n" + kComplete.substr(9),
       Law::leftover_at_end, 15, "", "y"},
      {"parameter ended on the device instead of the host", on_host + "free_host w\n" + kComplete,
       Law::end_differs_from_begin, 16, "", "w"},
      {"input ended on the host too", on_host + kComplete + "offload x",
       Law::end_differs_from_begin, 16, "", "x"},
      {"host kept the old parameter", on_host + kComplete, Law::end_differs_from_begin, 15, "",
       "w"},
      {"parameter ended on the device too", on_host + kComplete + "offload w",
       Law::end_differs_from_begin, 16, "", "w"},
      {"parameter ended on the host too", kComplete + "offload w", Law::end_differs_from_begin, 15,
       "", "w"},
  };
}

std::vector<Case> broken_moves() {
  return {
      {"new gradient before the old one left", "run step\nrun back", Law::end_differs_from_begin, 1,
       "back", "new"},
      {"old gradient came back over the new one",
       "offload old\nrun step\nfree old\nrun back\nprefetch old", Law::end_differs_from_begin, 4,
       "", "old"},
      {"new gradient before the old host copy left",
       "begin old host\nprefetch old\nrun step\nfree old\nrun back\noffload new",
       Law::end_differs_from_begin, 4, "", "new"},
      {"new gradient left its home", "run step\nfree old\nrun back\nfree new",
       Law::end_differs_from_begin, 4, "", "new"},
      {"old gradient stayed",
       "begin old host\nprefetch old\nfree_host old\nrun step\nrun back\noffload new\n"
       "free new",
       Law::end_differs_from_begin, 6, "", "old"},
      {"needed gradient begins nowhere", "begin old nowhere\nrun step", Law::lost_tensor, 0, "",
       "old"},
      {"new gradient ended on the device instead of the host",
       "begin old host\nprefetch old\nfree_host old\nrun step\nfree old\nrun back",
       Law::end_differs_from_begin, 5, "", "new"},
  };
}

void expect(const Trace& trace, const Plan& plan, const Case& wanted) {
  SCOPED_TRACE(wanted.title + "\n" + wanted.plan);
  const std::optional<Violation> found = check(trace, plan);
  ASSERT_TRUE(found) << "accepted";
  EXPECT_EQ(kLawNames[static_cast<std::size_t>(found->law)],
            kLawNames[static_cast<std::size_t>(wanted.law)])
      << found->detail;
  EXPECT_EQ(found->step, wanted.step) << found->detail;
  EXPECT_EQ(found->op, wanted.op) << found->detail;
  EXPECT_EQ(found->tensor, wanted.tensor) << found->detail;
  EXPECT_FALSE(found->detail.empty());
}

void expect_all(const Trace& trace, const std::vector<Case>& cases) {
  for (const Case& wanted : cases) expect(trace, mini_plan(trace, wanted.plan), wanted);
}

TEST(Laws, reads_of_wrong_or_missing_versions_are_refused) {
  expect_all(training(), broken_reads());
}
TEST(Laws, copies_and_frees_of_what_is_not_there_are_refused) {
  expect_all(training(), broken_copies());
}
TEST(Laws, values_that_cannot_be_made_again_must_not_get_lost) {
  expect_all(training(), lost_values());
}
TEST(Laws, runs_that_the_trace_forbids_are_refused) { expect_all(training(), broken_runs()); }
TEST(Laws, budgets_hold_to_the_byte) { expect_all(training(), broken_budgets()); }
TEST(Laws, the_end_restores_the_beginning) { expect_all(training(), broken_ends()); }
TEST(Laws, a_new_storage_takes_over_the_home_of_the_old_one) {
  expect_all(new_gradients(), broken_moves());
}

TEST(Laws, state_must_not_end_as_an_old_version) {
  const Trace trace = mini(R"(
    tensor w 4 buffer carry
    op first forward : w -> w
    op second forward : w -> w
  )");
  const std::string plan = "run first\noffload w\nrun second\nfree w\nprefetch w\nfree_host w";
  expect(trace, mini_plan(trace, plan),
         {"old host copy at the end", plan, Law::end_differs_from_begin, 6, "", "w"});
}

TEST(Laws, ids_and_tables_out_of_range_are_refused) {
  const Trace trace = training();
  const Plan good = mini_plan(trace, kComplete);
  const auto refused = [&](std::uint32_t step, const std::string& op, const std::string& tensor,
                           auto damage) {
    Plan plan = good;
    damage(plan);
    expect(trace, plan, {"damaged ids", "", Law::well_formed, step, op, tensor});
  };
  refused(0, "", "", [](Plan& plan) { plan.begin.pop_back(); });
  refused(0, "", "", [](Plan& plan) { plan.budget.host = {-1}; });
  refused(0, "", "w", [](Plan& plan) { plan.begin[1].place = static_cast<Place>(7); });
  refused(3, "", "", [](Plan& plan) { plan.steps[3].subject = 8; });
  refused(9, "", "", [](Plan& plan) { plan.steps[9].subject = 9; });
  refused(9, "", "m", [](Plan& plan) { plan.steps[9].kind = static_cast<StepKind>(9); });
  refused(9, "", "m", [](Plan& plan) { plan.steps[9].discard = {{0}}; });
  refused(2, "loss", "", [](Plan& plan) { plan.steps[2].discard = {{9}}; });
  refused(2, "loss", "", [](Plan& plan) { plan.steps[2].choice = 1; });

  Trace larger = new_gradients();
  larger.tensors[2].bytes = 5_B;
  expect(larger, mini_plan(larger, "run step"), {"", "", Law::well_formed, 0, "", "new"});
}

TEST(Laws, every_law_is_tested_here) {
  std::set<Law> laws;
  for (const auto& cases : {broken_reads(), broken_copies(), lost_values(), broken_runs(),
                            broken_budgets(), broken_ends(), broken_moves()})
    for (const Case& one : cases) laws.insert(one.law);
  EXPECT_EQ(laws.size(), kLawNames.size());
}

TEST(Laws, an_error_names_law_step_op_and_tensor) {
  const Trace trace = training();
  const auto found = check(trace, mini_plan(trace, "run conv\nfree w"));
  ASSERT_TRUE(found);
  const Error error = to_error(*found);
  EXPECT_EQ(error.code, ErrorCode::unlawful);
  EXPECT_EQ(error.message,
            "lost_tensor: plan step 1, tensor w: the last copy of w version 0 goes, but step still "
            "needs it");
}

}  // namespace
}  // namespace superneurons
