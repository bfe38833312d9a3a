#include "networks/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace superneurons {
namespace {

constexpr double kLongestOp = 1e12;  // ns; sums of op times stay below the 2^58 of a trace

// Tiles of the usual matrix kernels: rows of a wave of threads, and of a whole block of them where
// gradients of filters, small matrices summed over the batch, must fill it.
constexpr double kWaveTile = 64, kBlockTile = 128, kDepthTile = 32;
constexpr double kWinogradTile = 4;          // outputs per side, of F(4x4, 3x3)
constexpr double kWinogradFlops = 2 * 2.25;  // multiply and add, 36 products for 16 outputs
constexpr double kFewChannels = 16;          // with fewer nobody transforms

/// `size` filled up to whole tiles, as a factor.
double padding(double size, double tile) {
  return size > 0 ? std::ceil(size / tile) * tile / size : 1;
}

enum class Pass { forward, data, filter };

struct Convolution {
  double n, c, h, w, k, r, s, stride, oh, ow;

  bool transformed(bool tf32) const {
    return !tf32 && stride == 1 && std::min(r, s) >= 3 && std::min(c, k) >= kFewChannels;
  }
  std::string variant(bool tf32) const {
    if (r * s == 1) return stride == 1 ? "1x1" : "1x1/s";
    return transformed(tf32) ? "transform" : "direct";
  }
  double flops(Pass pass, bool tf32) const {
    const bool transform = transformed(tf32);
    double count = 2 * n * k * oh * ow * c * r * s;
    if (transform) {
      const double height = pass == Pass::data ? h : oh, width = pass == Pass::data ? w : ow;
      count = kWinogradFlops * n * k * oh * ow * c * padding(height, kWinogradTile) *
              padding(width, kWinogradTile);
    }
    const double depth = transform ? c : c * r * s;
    // With few channels, as of images, their rows would leave the tiles empty: filters times
    // gradient make all of a window's values, which are then summed up (col2im).
    if (pass == Pass::data) return count * padding(c < kFewChannels ? c * r * s : c, kWaveTile);
    if (pass == Pass::filter)
      return r * s == 1 ? count : count * padding(k, kBlockTile) * padding(depth, kBlockTile);
    return count * padding(k, kWaveTile) * (transform ? 1 : padding(depth, kDepthTile));
  }
};

double attribute(const Op& op, const char* name) {
  const auto found = op.attributes.find(name);
  return found == op.attributes.end() ? 0 : found->second;
}

Convolution convolution_of(const Op& op) {
  const auto get = [&op](const char* name) { return attribute(op, name); };
  return {get("n"), get("c"), get("h"),      get("w"),  get("k"),
          get("r"), get("s"), get("stride"), get("oh"), get("ow")};
}

double bytes_of(const Op& op) {
  if (op.bytes_moved.count > 0) return static_cast<double>(op.bytes_moved.count);
  double bytes = 0;
  for (const auto* accesses : {&op.reads, &op.writes})
    for (const Access& access : *accesses) bytes += static_cast<double>(access.length.count);
  return bytes;
}

Work convolution_work(const Op& op, std::string kind, Pass pass, bool tf32, double bytes) {
  const Convolution shape = convolution_of(op);
  if (!(shape.n * shape.k * shape.c * shape.r * shape.s > 0))  // not one of our networks
    return {.kind = std::move(kind), .tf32 = tf32, .flops = op.flops, .bytes = bytes};
  return {.kind = std::move(kind),
          .variant = shape.variant(tf32),
          .tf32 = tf32,
          .flops = shape.flops(pass, tf32),
          .bytes = bytes};
}

/// Sizes in bytes of what a fused op reads (x, weight, dy) and writes (dx, dweight, [dbias]).
double operand(const std::vector<Access>& accesses, std::size_t place) {
  return place < accesses.size() ? static_cast<double>(accesses[place].length.count) : 0;
}

/// The ops that the paper lowering fuses.
std::vector<Work> fused_work(const Op& op, bool tf32) {
  const double x = operand(op.reads, 0), weight = operand(op.reads, 1), dy = operand(op.reads, 2);
  const double data = weight + dy + x, filter = x + dy + weight;
  std::vector<Work> works;
  if (op.kind == "Conv2dBackward") {
    works.push_back(convolution_work(op, "Conv2dBackwardData", Pass::data, tf32, data));
    works.push_back(convolution_work(op, "Conv2dBackwardFilter", Pass::filter, tf32, filter));
  } else {
    for (const char* kind : {"LinearBackwardData", "LinearBackwardWeight"})
      works.push_back(Work{.kind = kind, .tf32 = tf32, .flops = op.flops / 2, .bytes = data});
  }
  if (op.writes.size() > 2)
    works.push_back(Work{.kind = op.kind + "Bias", .bytes = dy + operand(op.writes, 2)});
  return works;
}

bool is_known_elementwise(std::string_view kind) {
  for (const std::string_view prefix :
       {"Relu", "MaxPool", "AvgPool", "Lrn", "BatchNorm", "Dropout", "Add", "Accumulate", "Concat",
        "Copy", "SoftmaxCrossEntropy", "SgdUpdate"})
    if (kind.starts_with(prefix)) return true;
  return kind.ends_with("BackwardBias");
}

Efficiency efficiency_of(const Work& work, const DeviceProfile& profile) {
  for (const std::string& key : efficiency_keys(work)) {
    const auto found = profile.efficiency.find(key);
    if (found != profile.efficiency.end()) return found->second;
  }
  return {};
}

/// Time at that rate; 0 where the profile has none.
double time_at(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

double time_of(const Op& op, const Choice& choice, const DeviceProfile& profile) {
  const bool tf32 = choice.math == "tf32" && profile.tf32_flops_per_ns > 0;
  double ns = 0;
  for (const Work& work : work_of(op, tf32)) {
    const Efficiency reached = efficiency_of(work, profile);
    const double peak = work.tf32 ? profile.tf32_flops_per_ns : profile.flops_per_ns;
    ns += static_cast<double>(reached.floor_ns.count) + time_at(work.flops, peak * reached.flops) +
          time_at(work.bytes, profile.memory_bytes_per_ns * reached.bandwidth);
  }
  return std::clamp(ns, 1.0, kLongestOp);
}

}  // namespace

Status check_rates(const DeviceProfile& profile, std::string_view how) {
  if (profile.flops_per_ns > 0 && profile.memory_bytes_per_ns > 0) return Ok{};
  return Error{ErrorCode::bad_usage,
               fmt::format("profile {} has no flops_per_ns or memory_bytes_per_ns, which times are "
                           "{} by",
                           profile.name, how)};
}

std::vector<Work> work_of(const Op& op, bool tf32) {
  if (op.kind == "Conv2dBackward" || op.kind == "LinearBackward") return fused_work(op, tf32);
  const double bytes = bytes_of(op);
  if (is_known_elementwise(op.kind)) return {Work{.kind = op.kind, .bytes = bytes}};
  if (op.kind == "Conv2dForward")
    return {convolution_work(op, op.kind, Pass::forward, tf32, bytes)};
  if (op.kind == "Conv2dBackwardData")
    return {convolution_work(op, op.kind, Pass::data, tf32, bytes)};
  if (op.kind == "Conv2dBackwardFilter")
    return {convolution_work(op, op.kind, Pass::filter, tf32, bytes)};
  return {Work{.kind = op.kind, .tf32 = tf32, .flops = op.flops, .bytes = bytes}};
}

std::vector<std::string> efficiency_keys(const Work& work) {
  const std::string variant = work.variant.empty() ? "" : "/" + work.variant;
  std::vector<std::string> keys;
  if (work.tf32 && !variant.empty()) keys.push_back(work.kind + variant + "+tf32");
  if (work.tf32) keys.push_back(work.kind + "+tf32");
  if (!variant.empty()) keys.push_back(work.kind + variant);
  keys.push_back(work.kind);
  keys.emplace_back();
  return keys;
}

Nanoseconds roofline_time(const Op& op, const Choice& choice, const DeviceProfile& profile) {
  return {static_cast<std::int64_t>(std::ceil(time_of(op, choice, profile)))};
}

Status scale_to_device(Trace& trace, const DeviceProfile& from, const DeviceProfile& to) {
  for (const DeviceProfile* profile : {&from, &to})
    if (Status rates = check_rates(*profile, "scaled"); !rates) return rates;
  DeviceProfile target = to;
  if (target.efficiency.empty()) target.efficiency = from.efficiency;
  for (Op& op : trace.ops)
    for (Choice& choice : op.choices) {
      const double ratio = time_of(op, choice, target) / time_of(op, choice, from);
      const double ns = std::ceil(static_cast<double>(choice.ns.count) * ratio);
      choice.ns = {static_cast<std::int64_t>(std::clamp(ns, 0.0, kLongestOp))};
    }
  Capability& durations = trace.capabilities[static_cast<std::size_t>(Fact::durations)];
  durations = std::min(durations, Capability::inferred);
  trace.origin = fmt::format("scaled from {} to {}; {}", trace.device, to.device, trace.origin);
  trace.device = to.device;
  trace.step_ns_traced = trace.step_ns_untraced = {};
  return Ok{};
}

}  // namespace superneurons
