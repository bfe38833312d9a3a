#include "ir/trace_io.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <regex>

#include "tests/ir/rich_trace.h"
#include "tests/mini_trace.h"

namespace superneurons {
namespace {

Trace read_back(const Trace& trace) {
  Result<Trace> back = parse_trace(format_trace(trace), "t");
  EXPECT_TRUE(back) << back.error().message << "\n" << format_trace(trace);
  return back ? *std::move(back) : Trace{};
}

TEST(TraceText, KeepsEveryFieldOfTheHeaderAndOfTensors) {
  const Trace before = rich_trace();
  const Trace after = read_back(before);
  EXPECT_EQ(after.name, before.name);
  EXPECT_EQ(after.origin, before.origin);
  EXPECT_EQ(after.device, before.device);
  EXPECT_EQ(after.lowering, before.lowering);
  EXPECT_EQ(after.network, before.network);
  EXPECT_EQ(after.batch, before.batch);
  EXPECT_EQ(after.math, before.math);
  EXPECT_EQ(after.step_ns_untraced, before.step_ns_untraced);
  EXPECT_EQ(after.step_ns_traced, before.step_ns_traced);
  EXPECT_EQ(after.dropped_records, before.dropped_records);
  EXPECT_EQ(after.allocated_peak, before.allocated_peak);
  EXPECT_EQ(after.reserved_peak, before.reserved_peak);
  EXPECT_EQ(after.owned_ns, before.owned_ns);
  EXPECT_EQ(after.orphan_ns, before.orphan_ns);
  EXPECT_EQ(after.orphans, before.orphans);
  EXPECT_EQ(after.capabilities, before.capabilities);
  ASSERT_EQ(after.tensors.size(), before.tensors.size());
  for (std::size_t i = 0; i < after.tensors.size(); ++i) {
    const Tensor &a = after.tensors[i], &b = before.tensors[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.bytes, b.bytes);
    EXPECT_EQ(a.dtype, b.dtype);
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(a.layer, b.layer);
    EXPECT_EQ(a.role, b.role);
    EXPECT_EQ(a.freed_before, b.freed_before);
    EXPECT_EQ(a.init, b.init);
    EXPECT_EQ(a.init_scale, b.init_scale);
  }
  ASSERT_EQ(after.carry.size(), 1U);
  EXPECT_EQ(after.carry[0].end, TensorId{2});
  EXPECT_EQ(after.carry[0].start, TensorId{0});
}

TEST(TraceText, KeepsEveryFieldOfOps) {
  const Trace before = rich_trace(), after = read_back(before);
  ASSERT_EQ(after.ops.size(), before.ops.size());
  const Op &a = after.ops[0], &b = before.ops[0];
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.phase, b.phase);
  EXPECT_EQ(a.layer, b.layer);
  ASSERT_EQ(a.writes.size(), 2U);
  EXPECT_EQ(a.writes[0].offset, 32_B);
  EXPECT_EQ(a.writes[0].length, 32_B);
  EXPECT_EQ(a.writes[1].length, 1_MiB);
  EXPECT_EQ(a.reads.size(), 1U);
  EXPECT_EQ(a.once, b.once);
  ASSERT_EQ(a.choices.size(), 2U);
  EXPECT_EQ(a.choices[0].algorithm, b.choices[0].algorithm);
  EXPECT_EQ(a.choices[0].math, b.choices[0].math);
  EXPECT_EQ(a.choices[0].workspace, b.choices[0].workspace);
  EXPECT_EQ(a.choices[0].ns, b.choices[0].ns);
  EXPECT_EQ(a.choices[0].deterministic, b.choices[0].deterministic);
  EXPECT_EQ(a.choices[0].omits, b.choices[0].omits);
  EXPECT_TRUE(a.choices[1].deterministic);
  EXPECT_EQ(a.recorded, b.recorded);
  ASSERT_EQ(a.kernels.size(), 2U);
  EXPECT_EQ(a.kernels[0].name, b.kernels[0].name);
  EXPECT_EQ(a.kernels[0].ns, b.kernels[0].ns);
  EXPECT_EQ(a.attributes, b.attributes);
  EXPECT_TRUE(std::signbit(a.attributes.at("zero")));
  EXPECT_EQ(a.rerunnable, b.rerunnable);
  EXPECT_EQ(a.random, b.random);
  EXPECT_EQ(a.micro_batch, b.micro_batch);
  EXPECT_EQ(a.launch_group, b.launch_group);
  EXPECT_EQ(a.host_ns, b.host_ns);
  EXPECT_EQ(a.host_sync_ns, b.host_sync_ns);
  EXPECT_EQ(a.flops, b.flops);
  EXPECT_EQ(a.bytes_moved, b.bytes_moved);
}

TEST(TraceText, KeepsDoublesToTheBit) {
  std::mt19937_64 random(7);
  Trace trace = rich_trace();
  for (int round = 0; round < 200; ++round) {
    auto& attributes = trace.ops[0].attributes;
    attributes.clear();
    while (attributes.size() < 50) {
      const auto number = std::bit_cast<double>(random());
      if (std::isfinite(number)) attributes["a" + std::to_string(attributes.size())] = number;
    }
    attributes["2^53"] = 9007199254740992.0, attributes["2^63"] = 9223372036854775808.0;
    attributes["2^64"] = 18446744073709551616.0, attributes["least"] = 5e-324;
    const Trace after = read_back(trace);
    for (const auto& [key, value] : attributes)
      ASSERT_EQ(std::bit_cast<std::uint64_t>(after.ops.at(0).attributes.at(key)),
                std::bit_cast<std::uint64_t>(value))
          << key << " " << value;
  }
}

TEST(TraceText, IsCanonical) {
  const Trace trace = rich_trace();
  EXPECT_EQ(format_trace(read_back(trace)), format_trace(trace));
}

TEST(TraceText, WritesAnAccessOfAWholeTensorAsItsId) {
  const Trace trace = mini(R"(
    tensor a 8 input carry
    tensor b 8 activation
    op copy forward : a a[0:4] -> b[4:8]
  )");
  const std::string text = format_trace(trace);
  EXPECT_NE(text.find(R"("reads":[0,[0,0,4]],"writes":[[1,4,4]])"), std::string::npos) << text;
}

TEST(TraceText, IgnoresUnknownKeysKindsAndKeyOrderAndBlankLines) {
  const auto trace = parse_trace(
      "{\"version\":\"0.9\",\"new\":[{}],\"format\":\"superneurons-trace\",\"name\":\"n\"}\r\n"
      "\n"
      "{\"r\":\"stream\",\"id\":3}\n"
      "{\"role\":\"input\",\"bytes\":4,\"shade\":null,\"name\":\"a\",\"id\":0,\"r\":\"tensor\"}\n"
      "{\"bytes\":4,\"r\":\"end\",\"tensors\":1,\"ops\":0,\"carry\":0}",
      "t");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->tensors.at(0).bytes, 4_B);
}

TEST(TraceText, HasBytesThatAreNoUtf8Replaced) {
  Trace trace = rich_trace();
  trace.ops[0].kernels[0].name = "bad\xff";
  EXPECT_EQ(read_back(trace).ops.at(0).kernels.at(0).name, "bad\xef\xbf\xbd");
}

TEST(TraceHash, SeesEveryChangeButNotTheSpelling) {
  const Trace trace = rich_trace();
  const std::string hash = trace_hash(trace);
  EXPECT_TRUE(std::regex_match(hash, std::regex("[0-9a-f]{16}"))) << hash;
  std::string spelt = format_trace(trace);
  spelt.insert(1, "\"comment\":\"x\", ");
  const auto same = parse_trace(spelt, "t");
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(trace_hash(*same), hash);
  for (const auto& change : std::vector<void (*)(Trace&)>{
           [](Trace& t) { t.name += ' '; }, [](Trace& t) { t.ops[0].choices[0].ns = 6_ns; },
           [](Trace& t) { t.ops[0].attributes["pad"] = std::nextafter(1.0, 2.0); },
           [](Trace& t) { t.carry.clear(); }, [](Trace& t) { t.tensors[2].bytes = 65_B; }}) {
    Trace other = trace;
    change(other);
    EXPECT_NE(trace_hash(other), hash);
  }
}

TEST(TraceHash, IsTheOneThatTheFormatDescribes) {
  Trace trace;
  trace.name = "x";
  // Worked apart from the program; a change of the canonical text or of the hash changes it.
  EXPECT_EQ(trace_hash(trace), "2fd9d56638c447b6");
}

}  // namespace
}  // namespace superneurons
