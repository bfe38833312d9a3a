#include <gtest/gtest.h>

#include "ir/plan_io.h"
#include "ir/profile_io.h"
#include "ir/trace_io.h"
#include "tests/ir/rich_trace.h"

namespace superneurons {
namespace {

const std::vector<std::string> kTrace = {
    R"({"r":"header","format":"superneurons-trace","version":"0.1","name":"n"})",
    R"({"r":"tensor","id":0,"name":"w","bytes":64,"role":"parameter"})",
    R"({"r":"tensor","id":1,"name":"x","bytes":32,"role":"activation"})",
    R"({"r":"tensor","id":2,"name":"v","bytes":64,"role":"gradient","freed_before":2})",
    R"({"r":"op","id":0,"name":"f","kind":"F","reads":[0],"writes":[1,2],"choices":[{"ns":5}]})",
    R"({"r":"op","id":1,"name":"b","kind":"B","reads":[1,[2,0,8]],"writes":[0],"choices":[{"ns":5}]})",
    R"({"r":"carry","start":0})",
    R"({"r":"end","tensors":3,"ops":2,"carry":1,"bytes":160})",
};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

struct Damage {
  int line;          // where `from` is replaced by `to`
  std::string from;  // "" for the whole line
  std::string to;
  int error_line;
  std::string says;  // part of the message
};

template <class Parse>
void expect_refused(const std::vector<std::string>& good, const Damage& damage, Parse parse) {
  std::vector<std::string> lines = good;
  std::string& line = lines.at(damage.line - 1);
  const auto at = line.find(damage.from);
  ASSERT_NE(at, std::string::npos) << damage.from;
  line.replace(at, damage.from.empty() ? line.size() : damage.from.size(), damage.to);
  const auto result = parse(joined(lines), "file");
  ASSERT_FALSE(result) << "accepted: " << line;
  EXPECT_EQ(result.error().code, ErrorCode::bad_input);
  EXPECT_EQ(result.error().file, "file");
  EXPECT_EQ(result.error().line, damage.error_line) << result.error().message << "\n" << line;
  EXPECT_NE(result.error().message.find(damage.says), std::string::npos)
      << result.error().message << "\nlacks: " << damage.says;
}

TEST(BadTrace, TheUndamagedOneIsGood) {
  const auto trace = parse_trace(joined(kTrace), "file");
  EXPECT_TRUE(trace) << trace.error().message;
}

TEST(BadTrace, IsRefusedWithLineAndReason) {
  const std::string deep(1000000, '[');
  std::string wide = "[0";
  for (int i = 0; i < 2100000; ++i) wide += ",0";
  const Damage cases[] = {
      {1, "", "", 2, "lacks \"format\""},
      {1, "", "nonsense", 1, "syntax error"},
      {1, "superneurons-trace", "superneurons-plan", 1, "superneurons-trace"},
      {1, "\"0.1\"", "\"1.0\"", 1, "version 1.0 is newer"},
      {1, "\"0.1\"", "\"0.1.2\"", 1, "would be"},
      {1, "\"0.1\"", "0.1", 1, "\"version\" in quotes"},
      {1, "\"n\"", "\"n\",\"capabilities\":{\"flops\":\"good\"}", 1, "none inferred exact"},
      {1, "\"n\"", "\"n\",\"batch\":-1", 1, "batch is negative"},
      {2, "", "{\"r\":\"header\",\"format\":\"superneurons-trace\"}", 2, "second header"},
      {2, "", "[1]", 2, "an array"},
      {2, "", "{\"id\":0}", 2, "without a kind"},
      {2, "", deep, 2, "nested too deeply"},
      {2, "}", ",\"x\":" + deep + "}", 2, "nested too deeply"},
      {2, "", wide + ']', 2, "values in one record"},
      {2, "\"bytes\":64,", "", 2, "tensor 0 lacks \"bytes\""},
      {2, "64", "64.0", 2, "64.0 (would be a whole number"},
      {2, "64", "\"64\"", 2, "\"bytes\" of tensor 0"},
      {2, "64", "99999999999999999999", 2, "whole number"},
      {2, "64", "1e999", 2, "number"},
      {2, "64", "NaN", 2, "syntax error"},
      {2, "64", "-64", 2, "-64 bytes"},
      {2, "64", "0", 2, "0 bytes"},
      {2, "64", "4611686018427387904", 2, "2^62"},
      {2, "\"w\"", "\"\xff\"", 2, "UTF-8"},
      {2, "\"w\"", "\"\"", 2, "no name"},
      {2, "parameter", "weights", 2, "one of input parameter"},
      {2, "}", ",\"shape\":[2,-1]}", 2, "negative extent"},
      {2, "}", ",\"init_scale\":-1}", 2, "init_scale"},
      {3, "\"id\":1", "\"id\":0", 3, "a second tensor 0"},
      {3, "\"id\":1", "\"id\":2", 3, "tensor 2 comes where 1 is due"},
      {3, "\"x\"", "\"w\"", 3, "name of an earlier tensor"},
      {4, "\"freed_before\":2", "\"freed_before\":3", 4, "freed before op 3 of 2"},
      {4, "\"freed_before\":2", "\"freed_before\":1", 6, "which the program freed before op 1"},
      {5, "[0]", "[3]", 5, "accesses tensor 3, of which there is none"},
      {5, "[0]", "[-1]", 5, "\"reads\" of op 0"},
      {5, "[0]", "0", 5, "an array"},
      {5, "[0]", "[[0,0]]", 5, "[tensor, offset, length]"},
      {5, "[0]", "[[0,0,65]]", 5, "accesses 65 bytes from 0 of \"w\", which has 64"},
      {5, "[0]", "[[0,60,5]]", 5, "accesses 5 bytes from 60"},
      {5, "[0]", "[[0,-4,8]]", 5, "from -4"},
      {5, "[0]", "[[0,0,0]]", 5, "accesses 0 bytes"},
      {5, "[0]", "[[0,9223372036854775807,9223372036854775807]]", 5, "accesses"},
      {5, "[0]", "[1]", 5, "reads \"x\" before it was written"},
      {5, "[1,2]", "[1,1]", 5, "lists \"x\" twice"},
      {5, "\"choices\":[{\"ns\":5}]", "\"choices\":[]", 5, "no choice"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"recorded\":1", 5, "records choice 1 of 1"},
      {5, "\"ns\":5", "\"ns\":-5", 5, "takes -5 ns"},
      {5, "\"ns\":5", "\"ns\":0.5", 5, "0.5 (would be a whole number"},
      {5, "\"ns\":5", "\"ns\":null", 5, "null"},
      {5, "\"ns\":5", "\"ns\":288230376151711744", 5, "2^58"},
      {5, "\"ns\":5", "\"workspace\":-1", 5, "workspace of -1"},
      {5, "\"ns\":5", "\"workspace\":4611686018427387900", 5, "all with the tensors below 2^62"},
      {5, "\"ns\":5", "\"omits\":[0]", 5, "may omit tensor 0, but does not write it"},
      {5, "\"ns\":5", "\"omits\":[9]", 5, "may omit tensor 9"},
      {5, "\"ns\":5", "\"omits\":[1,1]", 5, "lists \"x\" twice among what a choice omits"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"once\":[2,2]", 5, "lists \"v\" twice as once"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"once\":[0]", 5, "tensor 0 as once"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"attributes\":{\"a\":\"b\"}", 5, "\"b\""},
      {2, "64", "64,\"bytes\":64", 2, "key \"bytes\" occurs twice"},
      {2, "64", "64,\"new\":{\"a\":1,\"b\":{},\"a\":1}", 2, "key \"a\" occurs twice"},
      {5, "\"ns\":5", "\"ns\":5,\"ns\":5", 5, "key \"ns\" occurs twice"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"attributes\":{\"a\":1,\"a\":2}", 5, "key \"a\" occurs"},
      {8, "160", "160,\"ops\":2", 8, "key \"ops\" occurs twice"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"kernels\":[[\"k\"]]", 5, "[name, ns]"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"kernels\":[[\"k\",-1]]", 5, "negative or too large"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"flops\":-1", 5, "flops"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"host_ns\":-1", 5, "host time"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"bytes_moved\":-1", 5, "bytes_moved"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"micro_batch\":-1", 5, "micro_batch"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"launch_group\":-2", 5, "launch_group"},
      {5, "[{\"ns\":5}]", "[{\"ns\":5}],\"random\":1", 5, "true or false"},
      {5, "\"kind\":\"F\"", "\"phase\":\"sideways\",\"kind\":\"F\"", 5, "one of forward"},
      {6, "\"b\"", "\"f\"", 6, "name of an earlier op"},
      {6, "\"id\":1", "\"id\":7", 6, "op 7 comes where 1 is due"},
      {7, "0}", "5}", 7, "names tensor 5, of which there is none"},
      {7, "0}", "-1}", 7, "whole number"},
      {7, "0}", "0,\"end\":1}", 7, "different sizes"},
      {7, "0}", "0,\"end\":2}", 7, "which the program freed"},
      {7, "", "{\"r\":\"stream\"}", 8, "states 1 carry, the file has 0"},
      {8, "\"carry\":1", "\"carry\":-1", 8, "states -1 carry"},
      {7, "\"start\":0", "\"start\":1", 5, "reads \"w\" before it was written"},
      {8, "\"ops\":2", "\"ops\":3", 8, "states 3 ops, the file has 2"},
      {8, "160", "161", 8, "states 161 bytes"},
      {8, "\"carry\":1,", "", 8, "lacks \"carry\""},
      {8, "", "", 7, "cut off after op 1 \"b\""},
      {8, "}", "", 8, "cut off after op 1 \"b\""},
      {8, "}", "}\n{\"r\":\"op\"}", 9, "follows the end record"},
  };
  for (const Damage& damage : cases) expect_refused(kTrace, damage, parse_trace);
}

TEST(BadTrace, NamesTheLastOpWhereverItIsCutOff) {
  const std::string text = joined(kTrace);
  const auto first_op = text.find("{\"r\":\"op\",\"id\":0"), second_op = text.find('\n', first_op);
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {
    const auto result = parse_trace(std::string_view(text).substr(0, size), "file");
    ASSERT_FALSE(result) << size;
    const std::string& message = result.error().message;
    const bool in_second_op = size > second_op && size < second_op + kTrace[5].size();
    const std::string says = size == 0                  ? "is empty"
                             : size <= kTrace[0].size() ? ""
                             : in_second_op             ? "cut off after op 0 \"f\""
                                                        : "cut off after";
    EXPECT_NE(message.find(says), std::string::npos) << size << ' ' << message;
  }
}

TEST(TraceLaws, StartOfATwoTensorCarryIsReadOnlyBeforeItsEndIsWritten) {
  std::vector<std::string> lines = kTrace;
  lines[3].replace(lines[3].find(",\"freed_before\":2"), 17, "");
  lines[6] = R"({"r":"carry","start":0,"end":2})";
  // Op 0 writes tensor 2, the end, and reads tensor 0, the start.
  auto result = parse_trace(joined(lines), "file");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().line, 5);
  EXPECT_NE(result.error().message.find("begun to write"), std::string::npos);
  lines[4] = R"({"r":"op","id":0,"name":"f","kind":"F","reads":[0],"writes":[1],"choices":[{}]})";
  lines[5] = R"({"r":"op","id":1,"name":"b","kind":"B","reads":[1],"writes":[2],"choices":[{}]})";
  result = parse_trace(joined(lines), "file");
  EXPECT_TRUE(result) << result.error().message;
  lines[5] = R"({"r":"op","id":1,"name":"b","kind":"B","reads":[1],"writes":[],"choices":[{}]})";
  result = parse_trace(joined(lines), "file");
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("which no op writes"), std::string::npos);
}

TEST(BadPlan, IsRefusedWithLineAndReason) {
  const std::vector<std::string> good = {
      R"({"r":"header","format":"superneurons-plan","version":"0.1","trace":"00","allocator":"first_fit","budget":{"device":9},"begin":["host"]})",
      R"({"run":0,"choice":1,"discard":[2]})",
      R"({"free":7})",
      R"({"r":"reason","step":1,"text":"why"})",
      R"({"r":"end","steps":2,"reasons":1})",
  };
  ASSERT_TRUE(parse_plan(joined(good), "file"));
  const Damage cases[] = {
      {1, "superneurons-plan", "superneurons-trace", 1, "superneurons-plan"},
      {1, "\"0.1\"", "\"2.1\"", 1, "newer"},
      {1, "\"trace\":\"00\",", "", 1, "lacks \"trace\""},
      {1, "{\"device\":9}", "9", 1, "\"budget\""},
      {1, "{\"device\":9}", "{}", 1, "lacks \"device\""},
      {1, "9", "-9", 1, "budget is negative"},
      {1, "[\"host\"]", "[\"disk\"]", 1, "one of device host nowhere"},
      {2, "\"run\":0", "\"run\":-1", 2, "\"run\" of step 0"},
      {2, "\"run\":0", "\"run\":4294967296", 2, "whole number"},
      {2, "\"run\":0", "\"run\":0.0", 2, "whole number"},
      {2, "\"run\":0", "\"run\":0,\"free\":0", 2, "several things"},
      {2, "[2]", "2", 2, "an array"},
      {3, "free", "fre", 3, "would have one of"},
      {4, "1", "\"1\"", 4, "\"step\" of reason 0"},
      {5, "\"steps\":2", "\"steps\":3", 5, "states 3 steps"},
      {5, "", "", 4, "cut off after step 1"},
  };
  for (const Damage& damage : cases) expect_refused(good, damage, parse_plan);
}

TEST(BadProfile, IsRefusedWithReason) {
  std::vector<std::string> good = {format_profile(rich_profile())};
  good[0].pop_back();
  ASSERT_TRUE(parse_profile(good[0], "file"));
  const Damage cases[] = {
      {1, "", " ", 0, "is empty"},
      {1, "", "[]", 0, "an array"},
      {1, "\"0.1\"", "\"1.0\"", 0, "newer"},
      {1, "\"name\":", "\"name\" ", 4, "syntax error"},
      {1, "2147483648", "-1", 0, "\"device_memory\""},
      {1, "2147483648", "1.5", 0, "whole number"},
      {1, "[[0,5],[1000,105]]", "[]", 0, "no points"},
      {1, "[[0,5],[1000,105]]", "[[0,5],[0,105]]", 0, "do not ascend"},
      {1, "[[0,5],[1000,105]]", "[[0,-5]]", 0, "negative"},
      {1, "[[0,5],[1000,105]]", "[[0]]", 0, "[bytes, ns]"},
      {1, "\"bytes_per_ns\":20", "\"bytes_per_ns\":0", 0, "above 0"},
      {1, "\"launch_ns\":1", "\"launch_ns\":-1", 0, "a time is negative"},
      {1, "{\"flops\":0.5", "{\"flops\":0.5,\"flops\":0.5", 0, "key \"flops\" occurs twice"},
      {1, "93.25", "-93.25", 0, "a rate is negative"},
      {1, "0.01", "-0.01", 0, "a slowdown is negative"},
      {1, "0.01", "1001", 0, "above 1000"},
      {1, "\"launch_ns\":1", "\"launch_ns\":1000000001", 0, "above 1 s"},
      {1, "93.25", "1e-7", 0, "tiny"},
      {1, "93.25", "1e10", 0, "huge"},
      {1, "\"bytes_per_ns\":20", "\"bytes_per_ns\":1e-7", 0, "from 1e-6"},
      {1, "[[0,5],[1000,105]]", "[[0,5],[1000,1125899906842625]]", 0, "2^50"},
      {1, "{\"flops\":0.5", "{\"flops\":0", 0, "efficiency"},
      {1, "{\"flops\":0.5", "{\"flop\":0.5", 0, "lacks \"flops\""},
  };
  for (const Damage& damage : cases) expect_refused(good, damage, parse_profile);
}

}  // namespace
}  // namespace superneurons
