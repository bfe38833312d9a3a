// Native kernels on the host: the operations of networks/operations.md over Eigen and plain loops.
// Internal to replay/host_native*.cpp. Single-threaded, every sum in a fixed order, so that equal
// inputs give equal bits wherever they lie.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replay/kernels.h"

namespace superneurons {

/// Reads attributes of an op and remembers the first that is missing or out of range.
class Attributes {
 public:
  explicit Attributes(const Op& op) : op_(op) {}
  /// A whole number in [least, 2^31); `least` if it is not.
  std::int64_t whole(const std::string& name, std::int64_t least = 1);
  double real(const std::string& name);
  /// Padding of the height ("pad_h") or width ("pad_w"): from that attribute or from "pad".
  std::int64_t padding(const std::string& name);
  const std::string& fault() const { return fault_; }
  /// `why` becomes the fault unless `holds` or there is one already.
  void require(bool holds, std::string_view why);

 private:
  const Op& op_;
  std::string fault_;
};

/// Product; a huge number, never a negative one, where it overflows.
std::int64_t product(std::initializer_list<std::int64_t> factors);

/// What an op should look like, from its attributes: elements of each operand. Words of 4 bytes
/// except for masks.
struct Operands {
  std::vector<std::int64_t> reads, writes;  // bytes
  std::int64_t workspace = 0;               // bytes that the choice IM2COL needs; 0: there is none
  std::vector<std::size_t> omittable;       // indices of writes that a choice may omit
};

/// One call with its op.
struct HostCall {
  const Op& op;
  const KernelCall& call;
  std::uint64_t seed = 0;

  const float* in(std::size_t i) const { return reinterpret_cast<const float*>(call.reads[i]); }
  /// Null if skipped or omitted.
  float* out(std::size_t i) const { return reinterpret_cast<float*>(call.writes[i]); }
  std::int64_t whole(const char* name) const {
    return static_cast<std::int64_t>(op.attributes.find(name)->second);
  }
  std::int64_t padding(const char* name) const {
    return whole(op.attributes.contains(name) ? name : "pad");
  }
  float real(const char* name) const {
    return static_cast<float>(op.attributes.find(name)->second);
  }
  const Choice& choice() const { return op.choices[call.choice]; }
};

/// A row of the table of kinds.
struct HostKind {
  std::string_view name;
  Operands (*operands)(const Op& op, Attributes& attributes);
  Status (*run)(const HostCall& call);
};

std::span<const HostKind> host_convolution_kinds();
std::span<const HostKind> host_linear_kinds();  // linear, softmax with cross entropy, SGD
std::span<const HostKind> host_window_kinds();  // pooling, LRN
std::span<const HostKind> host_batch_norm_kinds();
std::span<const HostKind> host_elementwise_kinds();  // relu, dropout, add, concat, copy

}  // namespace superneurons
