// Element by element on the host: ReLU, dropout, sums, concatenation, copies.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "replay/host_native.h"
#include "replay/initial.h"

namespace superneurons {
namespace {

std::int64_t count_bytes(Attributes& a) { return product({4, a.whole("count")}); }

Operands one_to_one(const Op&, Attributes& a) {
  const std::int64_t bytes = count_bytes(a);
  return {{bytes}, {bytes}, 0, {}};
}
Operands two_to_one(const Op&, Attributes& a) {
  const std::int64_t bytes = count_bytes(a);
  return {{bytes, bytes}, {bytes}, 0, {}};
}

/// The paper's runtime keeps x too, unused.
Operands relu_backward_operands(const Op& op, Attributes& a) {
  const std::size_t reads = op.reads.size() == 3 ? 3 : 2;
  return {std::vector<std::int64_t>(reads, count_bytes(a)), {count_bytes(a)}, 0, {}};
}

Status run_relu(const HostCall& call) {
  const std::int64_t count = call.whole("count");
  for (std::int64_t i = 0; i < count; ++i)
    call.out(0)[i] = call.in(0)[i] > 0 ? call.in(0)[i] : 0.0F;
  return Ok{};
}
Status run_relu_backward(const HostCall& call) {
  const std::int64_t count = call.whole("count");
  for (std::int64_t i = 0; i < count; ++i)
    call.out(0)[i] = call.in(0)[i] > 0 ? call.in(1)[i] : 0.0F;
  return Ok{};
}

void require_rate(Attributes& a) {
  const double rate = a.real("rate");
  a.require(rate >= 0 && rate < 1, "attribute rate must be in [0, 1)");
}
Operands dropout_operands(const Op& op, Attributes& a) {
  require_rate(a);
  a.require(op.random, "dropout must be a random op");
  return {{count_bytes(a)}, {count_bytes(a), a.whole("count")}, 0, {1}};
}
Operands dropout_backward_operands(const Op&, Attributes& a) {
  require_rate(a);
  return {{count_bytes(a), a.whole("count")}, {count_bytes(a)}, 0, {}};
}

Status run_dropout(const HostCall& call) {
  const float rate = call.real("rate");
  const float scale = 1.0F / (1.0F - rate);
  const std::uint64_t key = mix(call.seed, call.call.op.index);
  const auto step = static_cast<std::uint64_t>(call.call.training_step);
  std::byte* mask = call.call.writes[1];
  const std::int64_t count = call.whole("count");
  for (std::int64_t i = 0; i < count; ++i) {
    const bool keeps = dropout_keeps(key, step, static_cast<std::uint64_t>(i), rate);
    call.out(0)[i] = keeps ? call.in(0)[i] * scale : 0.0F;
    if (mask != nullptr) mask[i] = std::byte{keeps};
  }
  return Ok{};
}
Status run_dropout_backward(const HostCall& call) {
  const float scale = 1.0F / (1.0F - call.real("rate"));
  const std::byte* mask = call.call.reads[1];
  const std::int64_t count = call.whole("count");
  for (std::int64_t i = 0; i < count; ++i)
    call.out(0)[i] = mask[i] != std::byte{} ? call.in(0)[i] * scale : 0.0F;
  return Ok{};
}

Operands add_operands(const Op& op, Attributes& a) {
  const auto inputs = static_cast<std::int64_t>(op.reads.size());
  a.require(a.whole("inputs") == inputs, "attribute inputs is not the number of reads");
  return {std::vector<std::int64_t>(op.reads.size(), count_bytes(a)), {count_bytes(a)}, 0, {}};
}

/// From left to right; the output may be any of the inputs.
Status run_add(const HostCall& call) {
  const std::int64_t count = call.whole("count");
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = call.in(0)[i];
    for (std::size_t input = 1; input < call.op.reads.size(); ++input) sum += call.in(input)[i];
    call.out(0)[i] = sum;
  }
  return Ok{};
}
Status run_accumulate(const HostCall& call) {
  const std::int64_t count = call.whole("count");
  for (std::int64_t i = 0; i < count; ++i) call.out(0)[i] = call.in(0)[i] + call.in(1)[i];
  return Ok{};
}

std::string channels_name(std::size_t i) { return fmt::format("c{}", i); }

/// Bytes of the whole and of each part.
struct Concat {
  std::int64_t whole = 0;
  std::vector<std::int64_t> parts;
};
Concat concat(const std::vector<Access>& accesses, Attributes& a) {
  a.require(a.whole("inputs") == static_cast<std::int64_t>(accesses.size()),
            "attribute inputs is not the number of parts");
  Concat sizes;
  std::int64_t channels = 0;
  for (std::size_t i = 0; i < accesses.size(); ++i) {
    const std::int64_t part = a.whole(channels_name(i));
    sizes.parts.push_back(product({4, a.whole("n"), part, a.whole("hw")}));
    channels += part;
  }
  sizes.whole = product({4, a.whole("n"), channels, a.whole("hw")});
  return sizes;
}
Operands concat_operands(const Op& op, Attributes& a) {
  Concat sizes = concat(op.reads, a);
  return {std::move(sizes.parts), {sizes.whole}, 0, {}};
}
Operands concat_backward_operands(const Op& op, Attributes& a) {
  Concat sizes = concat(op.writes, a);
  return {{sizes.whole}, std::move(sizes.parts), 0, {}};
}

/// Calls visit(part, offset in the part, offset in the whole, bytes) for each image and part.
template <class Visit>
void for_each_part(const HostCall& call, std::size_t parts, Visit visit) {
  std::int64_t at = 0;
  for (std::int64_t n = 0; n < call.whole("n"); ++n)
    for (std::size_t part = 0; part < parts; ++part) {
      const std::int64_t bytes = 4 * call.whole(channels_name(part).c_str()) * call.whole("hw");
      visit(part, n * bytes, at, static_cast<std::size_t>(bytes));
      at += bytes;
    }
}
Status run_concat(const HostCall& call) {
  for_each_part(call, call.op.reads.size(), [&](std::size_t part, auto from, auto to, auto bytes) {
    std::memcpy(call.call.writes[0] + to, call.call.reads[part] + from, bytes);
  });
  return Ok{};
}
Status run_concat_backward(const HostCall& call) {
  for_each_part(call, call.op.writes.size(), [&](std::size_t part, auto to, auto from, auto bytes) {
    std::memcpy(call.call.writes[part] + to, call.call.reads[0] + from, bytes);
  });
  return Ok{};
}

Operands copy_operands(const Op& op, Attributes& a) {
  const auto outputs = static_cast<std::int64_t>(op.writes.size());
  a.require(a.whole("outputs") == outputs, "attribute outputs is not the number of writes");
  return {{count_bytes(a)}, std::vector<std::int64_t>(op.writes.size(), count_bytes(a)), 0, {}};
}
Status run_copy(const HostCall& call) {
  const auto bytes = static_cast<std::size_t>(4 * call.whole("count"));
  for (std::byte* to : call.call.writes)
    if (to != call.call.reads[0]) std::memcpy(to, call.call.reads[0], bytes);
  return Ok{};
}

constexpr std::array<HostKind, 9> kKinds{{
    {"ReluForward", one_to_one, run_relu},
    {"ReluBackward", relu_backward_operands, run_relu_backward},
    {"DropoutForward", dropout_operands, run_dropout},
    {"DropoutBackward", dropout_backward_operands, run_dropout_backward},
    {"AddForward", add_operands, run_add},
    {"Accumulate", two_to_one, run_accumulate},
    {"ConcatForward", concat_operands, run_concat},
    {"ConcatBackward", concat_backward_operands, run_concat_backward},
    {"Copy", copy_operands, run_copy},
}};

}  // namespace

std::span<const HostKind> host_elementwise_kinds() { return kKinds; }

}  // namespace superneurons
