// Training on a data set: mini-batches, how they reach the tensors, and what is learned of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "ir/files.h"
#include "ir/profile_io.h"
#include "memory/placement.h"
#include "networks/network.h"
#include "policies/policy.h"
#include "replay/host_choices.h"
#include "replay/inference.h"
#include "replay/reference.h"
#include "simulator/outcome.h"
#include "tests/random_trace.h"

namespace superneurons {
namespace {

using Trained = Run;  // in a test, Run is a function

const DataSet& digits() {
  static const DataSet data = *read_data_set(SUPERNEURONS_SOURCE_DIR "/data/digits.csv.gz");
  return data;
}

Trace digits_trace(std::int64_t batch, Lowering lowering = Lowering::native) {
  Trace trace =
      *lower(*find_network("digits_resnet"), {.batch = batch, .lowering = lowering, .rate = 0.05});
  EXPECT_TRUE(enumerate_host_choices(trace, 64_MiB, false));
  return trace;
}

TEST(DataSet, of_digits_is_whole) {
  const DataSet& data = digits();
  EXPECT_EQ(data.train + data.test, 1797);
  EXPECT_EQ(data.test, 360);
  EXPECT_EQ(*std::min_element(data.pixels.begin(), data.pixels.end()), -1.0F);
  EXPECT_EQ(*std::max_element(data.pixels.begin(), data.pixels.end()), 1.0F);
  EXPECT_EQ((std::set<std::int32_t>(data.labels.end() - data.test, data.labels.end()).size()), 10U);
}

TEST(DataSet, a_bad_file_is_refused_with_its_line) {
  const std::string header =
      R"({"format":"superneurons-data","version":"0.1","name":"two","shape":[1,1,2],"classes":3,)"
      R"("most":4,"train":1,"test":1})";
  const std::string path = testing::TempDir() + "/data_set_test.csv";
  const auto fault = [&](const std::string& text) {
    EXPECT_TRUE(write_file(path, text));
    const auto data = read_data_set(path);
    return data ? "" : std::to_string(data.error().line) + ": " + data.error().message;
  };
  EXPECT_EQ(fault(header + "\n2,0,4\n0,1,3\n"), "");
  EXPECT_EQ(fault(""), "0: is empty (would start with a header)");
  EXPECT_EQ(fault(header + "\n2,0,4\n"), "2: is cut off after image 1 of 2");
  EXPECT_EQ(fault(header + "\n2,0,4\n0,1,3\n0,1,3\n"), "4: more than the 2 images of the header");
  for (const char* bad : {"3,0,4", "-1,0,4", "2,0", "2,0,4,4", "2,0,5", "2,0,", "2,0,x", "2;0;4"})
    EXPECT_EQ(fault(header + "\n" + bad + "\n0,1,3\n").substr(0, 3), "2: ") << bad;
  EXPECT_NE(fault("{}").find("format"), std::string::npos);
  EXPECT_NE(fault("label,pixel\n").find("1: "), std::string::npos);
  for (const char* bad : {R"("shape":[1,2])", R"("shape":[1,0,2])", R"("classes":0)", R"("most":0)",
                          R"("train":0)", R"("test":-1)", R"("train":9000000000000000000)"}) {
    const std::string key = std::string(bad).substr(0, std::string(bad).find(':'));
    std::string wrong = header;
    const auto at = wrong.find(key + ":");
    const auto end = key == R"("shape")" ? wrong.find(']', at) + 1 : wrong.find_first_of(",}", at);
    EXPECT_EQ(fault(wrong.replace(at, end - at, bad)).substr(0, 3), "1: ") << bad;
  }
}

TEST(DataSet, each_epoch_is_another_order_of_the_training_images) {
  const DataSet& data = digits();
  const std::int64_t steps = steps_per_epoch(data, 100);
  ASSERT_EQ(steps, 14);
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (std::int64_t step = 0; step < 2 * steps; ++step) {
    const auto images = images_of_step(data, 100, 7, step);
    ASSERT_EQ(images.size(), 100U);
    auto& epoch = epochs[static_cast<std::size_t>(step / steps)];
    epoch.insert(epoch.end(), images.begin(), images.end());
  }
  for (const auto& epoch : epochs) {
    const std::set<std::int64_t> seen(epoch.begin(), epoch.end());
    EXPECT_EQ(seen.size(), 1400U);
    EXPECT_GE(*seen.begin(), 0);
    EXPECT_LT(*seen.rbegin(), data.train);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(images_of_step(data, 100, 7, 0), images_of_step(data, 100, 8, 0));
}

TEST(DataSet, goes_only_with_traces_that_take_such_images) {
  const auto fault = [](const Trace& trace) {
    const auto found = batch_tensors(trace, digits());
    return found ? "" : found.error().message;
  };
  EXPECT_EQ(fault(digits_trace(4)), "");
  EXPECT_EQ(fault(digits_trace(4, Lowering::paper)), "");
  EXPECT_NE(fault(digits_trace(1500)).find("1437 to train on"), std::string::npos);
  EXPECT_NE(fault(*lower(*find_network("small_cnn"), {.batch = 4})).find("1x8x8"),
            std::string::npos);
  EXPECT_NE(fault(random_trace(1, {})).find("built-in"), std::string::npos);
}

/// Plans that keep images and labels at all sorts of places between training steps.
TEST(Feeding, reaches_the_tensors_wherever_a_plan_keeps_them) {
  const Trace trace = digits_trace(8);
  const auto tensors = batch_tensors(trace, digits());
  const InputSource inputs = training_batches(digits(), *tensors, 1);
  ReplayOptions options{.training_steps = 6, .inputs = &inputs};
  const auto fixed =
      run_plan(trace, reference_plan(trace, keep_all_plan(trace)), {.training_steps = 6});
  int on_host = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    Plan plan = random_lawful_plan(trace, seed);
    plan.budget.host = 1_GiB;
    plan.budget.device = *smallest_arena(trace, plan);
    for (std::size_t i = 0; i < trace.carry.size(); ++i)
      on_host += trace.carry[i].start == tensors->images && plan.begin[i].place == Place::host;
    options.stress = false;
    const auto reference = run_plan(trace, reference_plan(trace, plan), options);
    ASSERT_TRUE(reference) << reference.error().message;
    options.stress = true;
    const auto run = run_plan(trace, plan, options);
    ASSERT_TRUE(run) << run.error().message;
    EXPECT_EQ(difference(reference->losses, run->losses), std::nullopt) << "seed " << seed;
    EXPECT_EQ(difference(trace, reference->checksums, run->checksums), "") << "seed " << seed;
    EXPECT_NE(difference(fixed->losses, run->losses), std::nullopt);
  }
  EXPECT_GT(on_host, 0);
  options.stress = false;
  options.guards = true;
  EXPECT_TRUE(run_plan(trace, reference_plan(trace, keep_all_plan(trace)), options));
}

TEST(Losses, differ_where_the_first_bit_does) {
  EXPECT_EQ(difference({1, 2, 3}, {1, 2, 3}), std::nullopt);
  EXPECT_EQ(difference({1, 2, 3}, {1, std::nextafter(2.0F, 3.0F), 4}), 1U);
  EXPECT_EQ(difference({1, 0.0F}, {1, -0.0F}), 1U);
  EXPECT_EQ(difference({1, 2}, {1}), 1U);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(difference({nan}, {nan}), std::nullopt);
}

TEST(Accuracy, does_not_depend_on_how_many_images_are_tested_at_once) {
  const Trace trace = digits_trace(100);
  const InputSource inputs = training_batches(digits(), *batch_tensors(trace, digits()), 1);
  const auto run = run_plan(trace, reference_plan(trace, keep_all_plan(trace)),
                            {.training_steps = 12, .inputs = &inputs, .keep_values = true});
  ASSERT_TRUE(run) << run.error().message;
  const auto together = test_accuracy(trace, *run, digits());
  ASSERT_TRUE(together) << together.error().message;
  EXPECT_EQ(together->images, 360);
  EXPECT_GT(together->correct, 180);
  EXPECT_LT(together->correct, 360);
  const Trace few = digits_trace(7, Lowering::paper);  // the same tensors with state, in its order
  Trained moved;
  for (const auto& [tensor, bytes] : run->values)
    for (std::uint32_t i = 0; i < few.tensors.size(); ++i)
      if (few.tensors[i].name == trace[tensor].name) moved.values.emplace_back(TensorId{i}, bytes);
  const auto apart = test_accuracy(few, moved, digits());
  ASSERT_TRUE(apart) << apart.error().message;
  EXPECT_EQ(apart->correct, together->correct);
  EXPECT_FALSE(test_accuracy(trace, Trained{}, digits()));
}

TEST(Training, learns_digits_in_less_memory_than_liveness_needs) {
  const Trace trace = digits_trace(64);
  const DeviceProfile profile = *read_profile(SUPERNEURONS_SOURCE_DIR "/traces/profiles/h200.json");
  const Predict predict = predictor(trace, profile);
  PlanRequest request{.policy = "liveness", .budget = {1_GiB, 1_GiB}};
  const auto floor = smallest_budget(trace, profile, request, predict);
  ASSERT_TRUE(floor) << floor.error().message;
  request.budget.device = {floor->budget.count * 7 / 10};
  EXPECT_EQ(make_plan(trace, profile, request, predict).error().code, ErrorCode::does_not_fit);
  request.policy = "recompute_offload";
  const auto plan = make_plan(trace, profile, request, predict);
  ASSERT_TRUE(plan) << plan.error().message;
  const InputSource inputs = training_batches(digits(), *batch_tensors(trace, digits()), 1);
  const ReplayOptions options{.training_steps = 110, .inputs = &inputs, .keep_values = true};
  const auto run = run_plan(trace, *plan, options);
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_LE(run->measured.peak, request.budget.device);
  const auto reference = run_reference(trace, *plan, options);
  ASSERT_TRUE(reference) << reference.error().message;
  EXPECT_EQ(reference->plan.policy, "reference");
  EXPECT_EQ(difference(reference->run.losses, run->losses), std::nullopt);
  EXPECT_EQ(difference(trace, reference->run.checksums, run->checksums), "");
  const auto accuracy = test_accuracy(trace, *run, digits());
  ASSERT_TRUE(accuracy) << accuracy.error().message;
  EXPECT_GT(accuracy->correct * 100, accuracy->images * 95);
}

}  // namespace
}  // namespace superneurons
