#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "ir/dataflow.h"
#include "networks/models.h"
#include "networks/network.h"
#include "networks/route.h"

namespace superneurons {
namespace {

constexpr Lowering kBoth[] = {Lowering::native, Lowering::paper};

Trace lowered(const Network& net, std::int64_t batch, Lowering lowering) {
  Result<Trace> trace = lower(net, {.batch = batch, .lowering = lowering});
  EXPECT_TRUE(trace) << net.name << ": " << (trace ? "" : trace.error().message);
  return trace ? *std::move(trace) : Trace{};
}

Network found(std::string_view name) {
  Result<Network> net = find_network(name);
  EXPECT_TRUE(net) << name;
  return net ? *std::move(net) : Network{};
}

struct Total {
  std::int64_t tensors = 0, bytes = 0;
};

Total total(const Trace& trace, const std::set<Role>& roles) {
  Total sum;
  for (const Tensor& tensor : trace.tensors) {
    if (!roles.contains(tensor.role)) continue;
    ++sum.tensors;
    sum.bytes += tensor.bytes.count;
  }
  return sum;
}

const std::set<Role> kPaperScope = {Role::activation, Role::activation_gradient};

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::int64_t parameters(const Trace& trace) { return total(trace, {Role::parameter}).bytes / 4; }

const Op& op_named(const Trace& trace, std::string_view name) {
  for (const Op& op : trace.ops)
    if (op.name == name) return op;
  ADD_FAILURE() << "no op " << name;
  return trace.ops.front();
}

std::string names(const Trace& trace, const std::vector<Access>& accesses) {
  std::string text;
  for (const Access& access : accesses)
    text += (text.empty() ? "" : " ") + trace[access.tensor].name;
  return text;
}

std::string dataflow_of(const Trace& trace, std::string_view op) {
  return names(trace, op_named(trace, op).reads) + " -> " +
         names(trace, op_named(trace, op).writes);
}

std::map<std::string, int> kinds(const Trace& trace) {
  std::map<std::string, int> count;
  for (const Op& op : trace.ops) ++count[op.kind];
  return count;
}

/// A trace that breaks no law, whose values are all somebody's, and whose frees are tight.
void expect_sound(const Trace& trace) {
  const auto fault = find_fault(trace);
  ASSERT_FALSE(fault) << trace.name << " " << trace.lowering << ": " << fault->message;
  const Dataflow flow = analyze(trace);
  for (std::size_t i = 0; i < trace.ops.size(); ++i)
    for (const Value& value : flow.ops[i].needs)
      EXPECT_TRUE(value.version > 0 || flow[value.tensor].alive_at_start)
          << trace.ops[i].name << " reads " << trace[value.tensor].name << " before it is made";
  for (std::size_t i = 0; i < trace.tensors.size(); ++i) {
    const Tensor& tensor = trace.tensors[i];
    ASSERT_FALSE(flow.tensors[i].users.empty()) << tensor.name << " is never used";
    EXPECT_EQ(flow.tensors[i].alive_at_start, !tensor.freed_before.has_value()) << tensor.name;
    if (tensor.freed_before && tensor.name != "loss")
      EXPECT_EQ(tensor.freed_before->index, flow.tensors[i].users.back().index + 1) << tensor.name;
  }
}

TEST(Lowering, EveryNetworkLowersToASoundTrace) {
  for (const NetworkEntry& entry : networks())
    for (const Lowering lowering : kBoth)
      for (const std::int64_t batch : {std::int64_t{1}, std::int64_t{7}, entry.default_batch})
        expect_sound(lowered(entry.make(), batch, lowering));
}

TEST(Lowering, AlexNetHasThePapersTensors) {
  const Total sum = total(lowered(alexnet(), 200, Lowering::paper), kPaperScope);
  EXPECT_EQ(sum.tensors, 36);
  EXPECT_NEAR(mebibytes(sum.bytes), 2189.437, 0.0005);
}

TEST(Lowering, ResNetHasTheReleasesForkAndJoinCopies) {
  const Total sum = total(lowered(found("resnet50"), 32, Lowering::paper), kPaperScope);
  EXPECT_NEAR(mebibytes(sum.bytes), 9096, 0.5);
}

TEST(Lowering, NetworksHaveTheirPublishedParameters) {
  const std::map<std::string, std::int64_t> published = {
      {"alexnet", 62'378'344},  {"vgg16", 138'357'544},    {"vgg19", 143'667'240},
      {"resnet50", 25'557'032}, {"resnet101", 44'549'160}, {"resnet152", 60'192'808}};
  for (const auto& [name, count] : published)
    for (const Lowering lowering : kBoth)
      EXPECT_EQ(parameters(lowered(found(name), 2, lowering)), count) << name;
}

}  // namespace
}  // namespace superneurons
