// Runs one native op on the host by itself.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "replay/kernels.h"

namespace superneurons {

using Floats = std::vector<float>;

struct OneOp {
  std::string kind;
  std::map<std::string, double> attributes;
  std::string algorithm = "";
  std::int64_t workspace = 0;  // bytes
  bool random = false;
  int training_step = 0;
};

/// The op as a trace: reads r0, r1 ..., writes w0, w1 ..., of as many floats as given.
inline Trace one_op_trace(const OneOp& one, const std::vector<std::size_t>& reads,
                          const std::vector<std::size_t>& writes) {
  Trace trace;
  trace.ops.resize(1);
  Op& op = trace.ops[0];
  op.name = "op";
  op.kind = one.kind;
  op.attributes = one.attributes;
  op.random = one.random;
  op.choices = {{.algorithm = one.algorithm, .workspace = {one.workspace}}};
  const auto add = [&](const std::string& name, std::size_t floats, std::vector<Access>& to) {
    const Bytes bytes{static_cast<std::int64_t>(floats * 4)};
    to.push_back({{static_cast<std::uint32_t>(trace.tensors.size())}, {}, bytes});
    trace.tensors.push_back({.name = name, .bytes = bytes});
  };
  for (std::size_t i = 0; i < reads.size(); ++i) add(fmt::format("r{}", i), reads[i], op.reads);
  for (std::size_t i = 0; i < writes.size(); ++i) add(fmt::format("w{}", i), writes[i], op.writes);
  return trace;
}

/// Outputs, filled with garbage before; of no size where the op failed (a test failure).
inline std::vector<Floats> run_one(const OneOp& one, std::vector<Floats> reads,
                                   const std::vector<std::size_t>& writes) {
  std::vector<std::size_t> sizes;
  for (const Floats& read : reads) sizes.push_back(read.size());
  const Trace trace = one_op_trace(one, sizes, writes);
  const std::unique_ptr<Kernels> kernels = make_host_native_kernels();
  const Status prepared = kernels->prepare(trace, 1);
  EXPECT_TRUE(prepared) << (prepared ? "" : prepared.error().message);
  if (!prepared) return {};
  std::vector<Floats> outputs;
  for (const std::size_t size : writes) outputs.emplace_back(size, 1e30F);
  std::vector<std::byte*> in, out;
  for (Floats& read : reads) in.push_back(reinterpret_cast<std::byte*>(read.data()));
  for (Floats& output : outputs) out.push_back(reinterpret_cast<std::byte*>(output.data()));
  Floats workspace(static_cast<std::size_t>(one.workspace / 4), 1e30F);
  KernelCall call;
  call.training_step = one.training_step;
  call.reads = in;
  call.writes = out;
  call.workspace = workspace.empty() ? nullptr : reinterpret_cast<std::byte*>(workspace.data());
  call.workspace_bytes = {one.workspace};
  const Status status = kernels->run(call, nullptr);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  return outputs;
}

}  // namespace superneurons
