// Plans that use every freedom that the rules give are accepted, at exactly the bytes they need.
#include <gtest/gtest.h>

#include "ir/check.h"
#include "tests/check/mini_plan.h"
#include "tests/mini_trace.h"

namespace superneurons {
namespace {

/// Two layers with an activation in place, backward, update. Homes take 12 bytes.
constexpr std::string_view kNet = R"(
  tensor x 8 input carry
  tensor w 4 parameter carry
  tensor y 8 activation
  tensor m 2 saved
  tensor z 8 activation
  tensor g 4 gradient
  op conv forward : x w -> y m ws=16
  op relu forward : y -> y
  op loss forward : y -> z
  op back backward : z y m -> g
  op step update once : w g -> w
)";
const std::string kEnd = "run back\nrun step\nfree y\nfree m\nfree z\nfree g\n";

std::string verdict(const Trace& trace, const Plan& plan) {
  const std::optional<Violation> found = check(trace, plan);
  return found ? to_error(*found).message : "lawful";
}

std::string verdict(std::string_view trace_text, const std::string& plan) {
  const Trace trace = mini(trace_text);
  return verdict(trace, mini_plan(trace, plan));
}

TEST(Lawful, the_recorded_order_with_late_frees) {
  EXPECT_EQ(verdict(kNet, "run conv\nrun relu\nrun loss\n" + kEnd), "lawful");
}

TEST(Lawful, budgets_of_exactly_what_is_needed) {
  // conv: 12 in homes, 8 + 2 written, workspace 16. Later: 12 + 10 + 8 + 4 = 34.
  EXPECT_EQ(verdict(kNet, "budget 38 host 0\nrun conv\nrun relu\nrun loss\n" + kEnd), "lawful");
  // z leaves and y with it: back needs 12 + y 8 + m 2 + z 8 + g 4; scratch for m: 12 + 18 + 16 + 2.
  EXPECT_EQ(verdict(kNet,
                    "budget 48 host 0\nrun conv\nrun relu\nrun loss\nfree y\n"
                    "run conv 0 discard m\nrun relu\n" +
                        kEnd),
            "lawful");
}

TEST(Lawful, offload_and_prefetch) {
  EXPECT_EQ(verdict(kNet,
                    "budget 99 host 2\nrun conv\noffload m\nfree m\nrun relu\nrun loss\n"
                    "prefetch m\nfree_host m\n" +
                        kEnd),
            "lawful");
}

TEST(Lawful, a_host_copy_may_be_renewed_and_read_twice) {
  EXPECT_EQ(verdict(kNet,
                    "run conv\noffload y\nrun relu\noffload y\nfree y\nprefetch y\nrun loss\n"
                    "free y\nprefetch y\nfree_host y\n" +
                        kEnd),
            "lawful");
}

TEST(Lawful, recomputing_a_chain_with_an_update_in_place) {
  EXPECT_EQ(
      verdict(kNet, "run conv\nrun relu\nrun loss\nfree y\nfree m\nrun conv\nrun relu\n" + kEnd),
      "lawful");
}

TEST(Lawful, an_old_version_from_the_host_lets_an_op_in_place_run_again) {
  EXPECT_EQ(verdict(kNet,
                    "run conv\noffload y\nrun relu\nrun loss\nfree y\nprefetch y\n"
                    "free_host y\nrun relu\n" +
                        kEnd),
            "lawful");
}

TEST(Lawful, a_rerun_may_overwrite_what_can_be_made_again) {
  EXPECT_EQ(verdict(kNet, "run conv\nrun relu\nrun conv\nrun relu\nrun loss\n" + kEnd), "lawful");
}

TEST(Lawful, a_first_run_may_discard_what_is_made_again_before_it_is_read) {
  EXPECT_EQ(
      verdict(kNet, "run conv 0 discard m\nrun relu\nrun loss\nrun conv 0 discard y\n" + kEnd),
      "lawful");
}

TEST(Lawful, a_discarding_rerun_leaves_the_device_copy_alone) {
  EXPECT_EQ(verdict(kNet, "run conv\nrun relu\nfree m\nrun conv 0 discard y\nrun loss\n" + kEnd),
            "lawful");
}

TEST(Lawful, parameters_and_input_that_live_on_the_host) {
  EXPECT_EQ(verdict(kNet,
                    "begin w host\nbegin x host\nbudget 38 host 12\nprefetch x\nprefetch w\n"
                    "run conv\nfree x\nrun relu\nrun loss\n" +
                        kEnd + "offload w\nfree w\n"),
            "lawful");
}

TEST(Lawful, a_parameter_may_leave_its_home_and_come_back) {
  EXPECT_EQ(verdict(kNet,
                    "run conv\noffload w\nfree w\nrun relu\nrun loss\nprefetch w\n"
                    "free_host w\n" +
                        kEnd),
            "lawful");
}

TEST(Lawful, statistics_move_once_though_their_op_runs_again) {
  const std::string net = R"(
    tensor x 8 input carry
    tensor mean 2 buffer carry
    tensor y 8 activation
    tensor z 8 activation
    op norm forward fixed=mean : x mean -> y mean
    op loss forward : y -> z
    op back backward : y z -> z
  )";
  EXPECT_EQ(verdict(net,
                    "begin mean host\nprefetch mean\nfree_host mean\nrun norm\noffload mean\n"
                    "free mean\nrun loss\nfree y\nrun norm\nrun back\nfree y\nfree z"),
            "lawful");
}

TEST(Lawful, a_choice_may_omit_what_nobody_reads) {
  Trace trace = mini(R"(
    tensor x 8 input carry
    tensor y 8 activation
    tensor m 2 saved
    op norm forward : x -> y m @5 | @4
    op loss forward : y -> y
  )");
  trace.ops[0].choices[1].omits = {tensor_id(trace, "m")};
  EXPECT_EQ(verdict(trace, mini_plan(trace, "budget 16\nrun norm 1\nrun loss\nfree y")), "lawful");
}

TEST(Lawful, partial_writes_grow_a_tensor_and_can_be_redone_in_order) {
  const std::string net = R"(
    tensor x 8 input carry
    tensor c 8 activation
    tensor z 8 activation
    op left forward : x -> c[0:4]
    op right forward : x -> c[4:8]
    op loss forward : c[2:6] -> z
    op back backward : c z -> z
  )";
  EXPECT_EQ(verdict(net,
                    "run left\nrun right\nrun loss\nfree c\nrun left\nrun right\nrun back\n"
                    "free c\nfree z"),
            "lawful");
}

TEST(Lawful, independent_ops_may_swap) {
  const std::string net = R"(
    tensor x 8 input carry
    tensor a 8 activation
    tensor b 8 activation
    op one forward : x -> a
    op two forward : x -> b
  )";
  EXPECT_EQ(verdict(net, "run two\nfree b\nrun one\nfree a"), "lawful");
}

constexpr std::string_view kNewGradients = R"(
  tensor w 4 parameter carry
  tensor old 4 gradient
  tensor new 4 gradient
  carry new old
  op step update once : w old -> w
  op back backward : w -> new
)";

TEST(Lawful, a_new_gradient_takes_over_the_home_of_the_old_one) {
  EXPECT_EQ(verdict(kNewGradients, "budget 8 host 0\nrun step\nfree old\nrun back"), "lawful");
}

TEST(Lawful, gradients_live_on_the_host_between_training_steps) {
  EXPECT_EQ(verdict(kNewGradients,
                    "begin old host\nbudget 8 host 4\nprefetch old\nfree_host old\n"
                    "run step\nfree old\nrun back\noffload new\nfree new"),
            "lawful");
}

TEST(Lawful, what_nobody_needs_may_begin_nowhere) {
  const std::string net = R"(
    tensor old 4 gradient
    tensor new 4 gradient
    tensor b 4 temporary carry
    carry new old
    op back backward : -> new b
  )";
  EXPECT_EQ(verdict(net, "begin old nowhere\nbegin b nowhere\nrun back\nfree new\nfree b"),
            "lawful");
}

TEST(Lawful, tensors_that_swap_homes) {
  const std::string net = R"(
    tensor a 4 parameter
    tensor b 4 parameter
    carry a b
    carry b a
    op read forward : a b -> a
  )";
  EXPECT_EQ(verdict(net,
                    "run read\noffload a\nfree a\noffload b\nfree b\nprefetch b\nfree_host b\n"
                    "prefetch a\nfree_host a"),
            "lawful");
}

}  // namespace
}  // namespace superneurons
