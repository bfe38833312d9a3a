// Traces of CUDA programs from activity logs written by hand: order, ranges, windows, allocations.
#include "tracer/from_activities.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "ir/trace_io.h"
#include "tests/tracer/synthetic_log.h"

namespace superneurons {
namespace {

Result<ActivityTrace> convert(const std::string& text, const std::string& window = "",
                              int depth = 0, std::size_t memory = 192U << 20) {
  return trace_from_activities({.text = text, .name = "log", .memory = memory}, "program",
                               {window, depth});
}

ActivityTrace made(const std::string& text, const std::string& window = "", int depth = 0) {
  auto result = convert(text, window, depth);
  if (!result) {
    ADD_FAILURE() << result.error().message;
    return {};
  }
  EXPECT_FALSE(find_fault(result->trace));
  EXPECT_TRUE(parse_trace(format_trace(result->trace), "text"));
  return std::move(*result);
}

std::string names(const Trace& trace) {
  std::string text;
  for (const Op& op : trace.ops) text += (text.empty() ? "" : " ") + op.name;
  return text;
}

/// A training step in ranges: forward of two layers, backward, update. `slower` ns more each time.
void step_in_ranges(SyntheticLog& log, std::int64_t slower) {
  log.open(1, "step");
  log.copy("HtoD", 4096, 50);
  log.open(2, "forward");
  for (const char* layer : {"conv1", "fc"}) {
    log.open(3, layer);
    log.kernel("gemm", 100 + slower);
    log.kernel("bias", 20);
    log.close(3);
  }
  log.kernel("loss", 10);
  log.close(2);
  log.open(4, "backward, seq = " + std::to_string(slower));
  log.kernel("gemm", 200 + slower);
  log.close(4);
  log.kernel("sgd", 30);
  log.close(1);
  log.synchronize();
}

TEST(TraceOfActivities, has_one_op_per_kernel_or_copy_in_launch_order_where_there_are_no_ranges) {
  SyntheticLog log;
  // Call 2 began on the device before call 1, and its record came first.
  log.text += R"({"r":"name","id":0,"text":"gemm"})"
              "\n"
              R"({"r":"name","id":1,"text":"memcpy HtoD"})"
              "\n"
              R"({"r":"kernel","name":0,"call":2,"stream":1,"start":100,"end":130})"
              "\n"
              R"({"r":"kernel","name":0,"call":3,"stream":2,"start":120,"end":180})"
              "\n"
              R"({"r":"copy","name":1,"call":1,"stream":1,"start":50,"end":90,"bytes":8})"
              "\n";
  log.works = 3;
  const ActivityTrace found = made(log.finish());
  EXPECT_EQ(names(found.trace), "0.memcpy HtoD 1.gemm 2.gemm");
  EXPECT_EQ(found.trace.ops[0].kind, "memcpy HtoD");
  EXPECT_EQ(found.trace.ops[1].kind, "kernel");
  EXPECT_EQ(found.trace.ops[1].choices[0].ns, 30_ns);
  EXPECT_EQ(found.trace.step_ns_traced, 130_ns);  // 50 to 180
  EXPECT_EQ(found.trace.capability(Fact::durations), Capability::exact);
  EXPECT_EQ(found.trace.capability(Fact::accesses), Capability::none);
  EXPECT_EQ(found.trace.capability(Fact::host_times), Capability::none);  // no call was recorded
  EXPECT_NE(found.remarks.back().find("of 3 kernels"), std::string::npos);
}

TEST(TraceOfActivities, takes_the_instances_of_a_range_for_training_steps_and_medians_of_times) {
  SyntheticLog log;
  log.kernel("warm up", 1000);
  for (const std::int64_t slower : {40, 0, 10}) step_in_ranges(log, slower);
  log.kernel("evaluate", 70);
  const ActivityTrace found = made(log.finish(), "range:step");
  const Trace& trace = found.trace;
  EXPECT_EQ(names(trace), "0.memcpy HtoD 1.conv1 2.fc 3.forward 4.backward 5.sgd");
  EXPECT_EQ(found.remarks.at(0), "the training step is the range \"step\", seen 3 times");
  EXPECT_EQ(trace.ops[1].choices[0].ns, 130_ns);  // 110 + 20, one right after the other
  ASSERT_EQ(trace.ops[1].kernels.size(), 2U);
  EXPECT_EQ(trace.ops[1].kernels[0].ns, 110_ns);
  EXPECT_EQ(trace.ops[1].phase, Phase::forward);
  EXPECT_EQ(trace.ops[1].layer, "forward");
  EXPECT_EQ(trace.ops[4].phase, Phase::backward);
  EXPECT_EQ(trace.ops[4].kind, "backward");  // without its sequence number
  EXPECT_EQ(trace.ops[5].phase, Phase::other);
  EXPECT_EQ(trace.capability(Fact::layers), Capability::inferred);
  EXPECT_EQ(trace.capability(Fact::phases), Capability::inferred);
  EXPECT_GT(trace.ops[5].host_sync_ns, 0_ns);  // the host waited after the update
  EXPECT_EQ(trace.ops[1].host_sync_ns, 0_ns);
}

TEST(TraceOfActivities, folds_ranges_deeper_than_asked_for) {
  SyntheticLog log;
  for (int i = 0; i < 3; ++i) step_in_ranges(log, 0);
  const ActivityTrace found = made(log.finish(), "range:step", 1);
  EXPECT_EQ(names(found.trace), "0.memcpy HtoD 1.forward 2.backward 3.sgd");
  EXPECT_EQ(found.trace.ops[1].kernels.size(), 5U);
}

TEST(TraceOfActivities, takes_a_program_that_never_closes_its_ranges) {
  SyntheticLog nested;  // one more around each kernel
  for (std::uint32_t i = 1; i <= 20'000; ++i) {
    nested.open(i, "step");
    nested.kernel("k", 10);
  }
  const ActivityTrace deep = made(nested.finish(), "whole");
  ASSERT_EQ(deep.trace.ops.size(), 65U);  // the first is around all others
  EXPECT_EQ(deep.trace.ops.back().kernels.size(), 20'000U - 64);
  SyntheticLog ahead;
  for (std::uint32_t i = 1; i <= 20'000; ++i) ahead.open(i, "step");
  for (int i = 0; i < 20'000; ++i) ahead.kernel("k", 10);
  EXPECT_EQ(made(ahead.finish(), "whole").trace.ops.size(), 20'000U);
}

TEST(TraceOfActivities, finds_the_training_step_by_its_pattern_whatever_is_copied_now_and_then) {
  SyntheticLog log;
  for (const char* name : {"init", "init", "tune"}) log.kernel(name, 5);
  for (int step = 0; step < 12; ++step) {
    log.pause(500);
    log.copy("HtoD", 4096, 50);
    for (int layer = 0; layer < 3; ++layer) log.kernel("layer", 100);
    log.kernel("loss", 10);
    log.kernel("update", 20 + step);
    if (step % 5 == 4) log.copy("DtoH", 4, 3);  // a loss to print
  }
  const ActivityTrace found = made(log.finish());
  EXPECT_EQ(names(found.trace), "0.memcpy HtoD 1.layer 2.layer 3.layer 4.loss 5.update");
  EXPECT_NE(found.remarks[0].find("a pattern of 5 kernels, seen 12 times, of which 10 do"),
            std::string::npos)
      << found.remarks[0];
  EXPECT_EQ(found.trace.capability(Fact::layers), Capability::none);
}

TEST(TraceOfActivities, makes_tensors_of_allocations_with_their_lifetimes) {
  SyntheticLog log;
  log.allocate(0x1000, 4096);  // weights: stay
  std::uint64_t state = 0x9000;
  log.allocate(state, 512);  // moves to a new place in each training step
  for (int step = 0; step < 4; ++step) {
    log.open(1, "step");
    log.allocate(0x3000, 8192);  // activations
    log.kernel("forward", 100);
    log.kernel("backward", 100);
    const std::uint64_t next = state ^ 0x1000;
    log.allocate(next, 512);
    log.kernel("update", 10);
    log.free(state, 512);
    state = next;
    log.free(0x3000, 8192);
    log.close(1);
  }
  const ActivityTrace found = made(log.finish(), "range:step");
  const Trace& trace = found.trace;
  ASSERT_EQ(trace.tensors.size(), 4U);
  EXPECT_EQ(trace.tensors[0].bytes, 4096_B);
  EXPECT_EQ(trace.tensors[0].role, Role::buffer);
  EXPECT_FALSE(trace.tensors[0].freed_before);
  EXPECT_EQ(trace.tensors[2].bytes, 8192_B);
  EXPECT_EQ(trace.tensors[2].freed_before, OpId{3});
  ASSERT_EQ(trace.ops[0].writes.size(), 1U);  // made before the first op
  EXPECT_EQ(trace.ops[0].writes[0].tensor, TensorId{2});
  ASSERT_EQ(trace.carry.size(), 2U);
  EXPECT_EQ(trace.carry[0].start, TensorId{0});
  EXPECT_EQ(trace.carry[1].start, TensorId{1});  // the old place of the state
  EXPECT_EQ(trace.carry[1].end, TensorId{3});    // and its new one
  EXPECT_EQ(trace.capability(Fact::frees), Capability::exact);
}

TEST(TraceOfActivities, starts_a_pattern_where_least_is_allocated) {
  SyntheticLog log;
  for (int step = 0; step < 5; ++step) {
    log.allocate(0x3000, 8192);
    log.kernel("a", 10);
    log.allocate(0x9000, 64);
    log.kernel("b", 10);
    log.free(0x3000, 8192);
    log.pause(1000);  // a longer one than at the start, but something lives on through it
    log.kernel("c", 10);
    log.free(0x9000, 64);
  }
  EXPECT_EQ(names(made(log.finish()).trace), "0.a 1.b 2.c");
}

TEST(TraceOfActivities, is_the_same_however_little_memory_there_is_to_sort_in) {
  SyntheticLog log;
  for (int i = 0; i < 40; ++i) step_in_ranges(log, i % 7);
  const auto plenty = convert(log.finish());
  const auto little = convert(log.finish(), "", 0, 2000);
  ASSERT_TRUE(plenty && little);
  EXPECT_EQ(format_trace(plenty->trace), format_trace(little->trace));
}

TEST(TraceOfActivities, converts_a_log_that_is_cut_off_and_says_after_what) {
  SyntheticLog log;
  for (int i = 0; i < 5; ++i) step_in_ranges(log, 0);
  const std::string half_a_line = log.text + R"({"r":"kernel","na)";
  for (const std::string& text : {log.text, half_a_line}) {
    const ActivityTrace found = made(text);
    ASSERT_EQ(found.remarks.size(), 2U);
    EXPECT_NE(found.remarks[1].find("cut off after kernel or copy 39, sgd"), std::string::npos)
        << found.remarks[1];
    EXPECT_EQ(found.trace.capability(Fact::durations), Capability::inferred);
  }
}

TEST(TraceOfActivities, is_honest_about_lost_records) {
  SyntheticLog log;
  log.kernel("gemm", 10);
  const ActivityTrace found = made(log.finish(7));
  EXPECT_EQ(found.trace.dropped_records, 7);
  EXPECT_EQ(found.trace.capability(Fact::durations), Capability::inferred);
  EXPECT_EQ(found.remarks.back(), "the tracer lost 7 records");
}

TEST(TraceOfActivities, refuses_windows_that_are_not_there_and_says_which_are) {
  SyntheticLog log;
  step_in_ranges(log, 0);
  const auto no_range = convert(log.finish(), "range:epoch");
  ASSERT_FALSE(no_range);
  EXPECT_NE(no_range.error().message.find("outermost ranges: step"), std::string::npos);
  const auto no_pattern = convert(log.finish(), "pattern");
  ASSERT_FALSE(no_pattern);
  EXPECT_EQ(no_pattern.error().code, ErrorCode::bad_usage);
  EXPECT_NE(convert(log.finish(), "steps").error().message.find("range:NAME"), std::string::npos);
  EXPECT_EQ(names(made(log.finish(), "whole").trace),
            "0.memcpy HtoD 1.conv1 2.fc 3.forward 4.backward 5.sgd");
}

TEST(ActivityLogText, of_the_format_document_is_what_it_says) {
  std::ifstream file(SUPERNEURONS_SOURCE_DIR "/traces/FORMAT.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  const auto from = document.find(R"({"r":"header","format":"superneurons-activities")");
  ASSERT_NE(from, std::string::npos);
  const ActivityTrace found = made(document.substr(from, document.find("```", from) - from));
  EXPECT_EQ(names(found.trace), "0.gemm 1.memcpy DtoH");
  EXPECT_EQ(found.trace.tensors.size(), 1U);
  EXPECT_EQ(found.remarks.size(), 1U);  // only what the window is
}

TEST(ActivityLogText, that_is_damaged_is_refused_with_its_line) {
  const std::string head = SyntheticLog().text;
  const std::string name = "{\"r\":\"name\",\"id\":0,\"text\":\"k\"}\n";
  const std::string kernel = R"({"r":"kernel","name":0,"call":1,"stream":0,"start":5,"end":9})"
                             "\n";
  const std::string end = R"({"r":"end","activities":1,"dropped":0})"
                          "\n";
  ASSERT_TRUE(convert(head + name + kernel + end));
  const std::tuple<std::string, int, std::string> cases[] = {
      {"", 0, "is empty"},
      {"{\"a\":1}\n", 1, "format"},
      {head + head, 2, "second header"},
      {head + kernel, 2, "would be one of the 0 so far"},
      {head + name + name, 3, "name 0 comes where 1 is due"},
      {head + name + kernel + kernel + end, 5, "states 1 activities, the file has 2"},
      {head + name + kernel + end + kernel, 5, "follows the end record"},
      {head + name + "x\n" + end, 3, "syntax error"},
      {head + "[1]\n", 2, "would be an object"},
      {head + "{}\n", 2, "without a kind"},
      {head + R"({"r":"kernel","name":0})", 2, "would be one of"},
      {head + name + R"({"r":"copy","name":0,"call":1,"stream":0,"start":9,"end":5})", 3,
       "ends before it starts"},
      {head + R"({"r":"free","address":-1,"bytes":5,"at":0})", 2, "negative"},
      {head + R"({"r":"close","range":1,"at":-4})", 2, "negative"},
  };
  for (const auto& [text, number, says] : cases) {
    const auto found = convert(text);
    ASSERT_FALSE(found) << text;
    EXPECT_EQ(found.error().line, number) << found.error().message;
    EXPECT_NE(found.error().message.find(says), std::string::npos) << found.error().message;
  }
  EXPECT_NE(convert(head).error().message.find("did nothing on a GPU"), std::string::npos);
}

/// One random change: a byte, a line, or a number.
std::string damaged(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const auto line_at = [&](std::size_t at) {
    const auto begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    return text.substr(begin, text.find('\n', at) + 1 - begin);
  };
  const std::size_t at = below(text.size() - 1);
  const std::string line = line_at(at);
  switch (below(4)) {
    case 0:
      text[at] = static_cast<char>(random());
      break;
    case 1:
      text.insert(text.find('\n', at) + 1, line_at(below(text.size() - 1)));
      break;
    case 2:
      text.erase(text.find(line), line.size());
      break;
    default: {
      static const char* const kNumbers[] = {
          "0",  "1", "-1", "4294967295", "4294967296", "144115188075855871", "9223372036854775807",
          "0.5"};
      const auto begin = text.find_first_of("0123456789", at);
      if (begin == std::string::npos) break;
      const auto end = text.find_first_not_of("0123456789", begin);
      text.replace(begin, end - begin, kNumbers[below(std::size(kNumbers))]);
    }
  }
  return text;
}

TEST(ActivityLogText, that_is_damaged_at_random_is_refused_with_words_or_gives_a_lawful_trace) {
  SyntheticLog log;
  log.allocate(0x1000, 64);
  for (int i = 0; i < 4; ++i) {
    log.allocate(0x3000, 4096);
    step_in_ranges(log, i);
    log.free(0x3000, 4096);
  }
  std::mt19937 random(1);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string text = log.finish();
    for (std::size_t changes = 1 + random() % 3; changes > 0; --changes)
      text = damaged(std::move(text), random);
    for (const char* window : {"", "range:step"}) {
      const auto found = convert(text, window, static_cast<int>(random() % 3), 3000);
      if (found) {
        ASSERT_FALSE(find_fault(found->trace)) << text;
        continue;
      }
      ++refused;
      ASSERT_FALSE(found.error().message.empty()) << text;
    }
  }
  EXPECT_GT(refused, 200);
  EXPECT_LT(refused, 1800);
}

}  // namespace
}  // namespace superneurons
