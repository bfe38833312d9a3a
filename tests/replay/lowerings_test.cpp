// One network trains to the same bits in every order of its layers and under every lowering: they
// differ in what they copy, share and overwrite, not in what they compute.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "networks/network.h"
#include "replay/host_choices.h"
#include "replay/reference.h"
#include "replay/replay.h"

namespace superneurons {
namespace {

/// The trace with tensors in another order: the batch and the parameters first, by name. First
/// values are drawn by a tensor's number, which depends on how many others a lowering makes.
Trace renumbered(const Trace& trace) {
  std::vector<std::uint32_t> order(trace.tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  const auto rank = [&](std::uint32_t i) {
    const Role role = trace.tensors[i].role;
    return role == Role::input ? 0 : role == Role::parameter ? 1 : 2;
  };
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::pair(rank(a), trace.tensors[a].name) < std::pair(rank(b), trace.tensors[b].name);
  });
  std::vector<std::uint32_t> number(order.size());
  Trace result = trace;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    number[order[i]] = i;
    result.tensors[i] = trace.tensors[order[i]];
  }
  const auto renumber = [&](TensorId& id) { id.index = number[id.index]; };
  for (Op& op : result.ops) {
    for (Access& read : op.reads) renumber(read.tensor);
    for (Access& write : op.writes) renumber(write.tensor);
    for (TensorId& id : op.once) renumber(id);
  }
  for (Carry& carry : result.carry) {
    renumber(carry.end);
    renumber(carry.start);
  }
  return result;
}

/// Checksums by name after three training steps of the small network.
std::map<std::string, std::uint64_t> trained(LoweringOptions options) {
  options.batch = 4;
  Trace trace = renumbered(*lower(*find_network("small_cnn"), options));
  EXPECT_TRUE(enumerate_host_choices(trace, 64_MiB, false));
  const Result<Run> run = run_plan(trace, reference_plan(trace, keep_all_plan(trace)), {});
  EXPECT_TRUE(run) << run.error().message;
  std::map<std::string, std::uint64_t> sums;
  for (std::size_t i = 0; i < run->checksums.tensors.size(); ++i)
    sums[trace[run->checksums.tensors[i]].name] = run->checksums.values[i];
  return sums;
}

// Where three branches meet their gradients are added in another order, and a dropout draws from
// the number of its op, which another forward order or the paper's copies change: the bits would
// differ then. The small network has neither.
TEST(Lowerings, TrainToTheSameBits) {
  const auto reference = trained({});
  EXPECT_GE(reference.size(), 20U);
  for (const LoweringEntry& entry : lowerings()) {
    if (entry.lowering == Lowering::paper) continue;  // its copies shift the dropout's number
    for (const LayerOrder order : {LayerOrder::declared, LayerOrder::route})
      EXPECT_EQ(trained({.lowering = entry.lowering, .order = order}), reference)
          << entry.name << " in " << kLayerOrderNames[static_cast<std::size_t>(order)] << " order";
  }
  EXPECT_NE(trained({.rate = 0.02}), reference);
}

TEST(Lowerings, OfThePaperTrainToTheSameBitsInBothOrders) {
  EXPECT_EQ(trained({.lowering = Lowering::paper, .order = LayerOrder::declared}),
            trained({.lowering = Lowering::paper, .order = LayerOrder::route}));
}

}  // namespace
}  // namespace superneurons
