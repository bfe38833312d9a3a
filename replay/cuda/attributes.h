// Reading an op's attributes, and holding its operands against them.
#pragma once

#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>

#include "ir/result.h"
#include "ir/trace.h"

namespace superneurons {

inline constexpr std::int64_t kTooMany = std::int64_t{1} << 40;
/// Product of positive factors, at most kTooMany, which stands for "no tensor is that large".
inline std::int64_t capped_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t result = 1;
  for (std::int64_t factor : factors) {
    if (factor > kTooMany / result) return kTooMany;
    result *= factor;
  }
  return result;
}

/// Remembers the first attribute that is missing or unfit, so that a kernel reads all it needs and
/// asks once.
class OpAttributes {
 public:
  explicit OpAttributes(const Op& op) : op_(op) {}

  /// A whole number of at least `least` that fits an int.
  int count(const char* name, int least = 1) {
    const double value = number(name);
    if (value >= least && value <= std::numeric_limits<int>::max() && std::floor(value) == value)
      return static_cast<int>(value);
    fail(name, "is no whole number that a kernel takes (below 2^31)");
    return least;
  }
  /// Padding of the height ("pad_h") or width ("pad_w"): from that attribute or from "pad".
  int padding(const char* name) { return count(op_.attributes.contains(name) ? name : "pad", 0); }
  std::int64_t large(const char* name) {
    const double value = number(name);
    if (value >= 1 && value < static_cast<double>(kTooMany) && std::floor(value) == value)
      return static_cast<std::int64_t>(value);
    fail(name, "is no whole number that a kernel takes (from 1, below 2^40)");
    return 1;
  }
  double number(const char* name) {
    const auto found = op_.attributes.find(name);
    if (found == op_.attributes.end()) {
      fail(name, "is missing");
      return 1;
    }
    return found->second;
  }
  const std::optional<Error>& fault() const { return fault_; }

 private:
  void fail(const char* name, const char* what) {
    if (fault_) return;
    fault_ = Error{.code = ErrorCode::bad_input,
                   .message = std::string("attribute '") + name + "' " + what};
  }
  const Op& op_;
  std::optional<Error> fault_;
};

/// One operand: elements and bytes of each.
struct Expected {
  std::int64_t elements = 0;
  std::int64_t size = 4;
};

/// Ok if the op's accesses begin with exactly these, each covering its whole tensor: kernels trust
/// sizes. Paper lowering reads more than its kernels use, after those (`more`).
inline Status expect_operands(const Trace& trace, const std::vector<Access>& accesses,
                              const char* which, const std::vector<Expected>& expected, bool more) {
  const auto bad = [&](const std::string& why) {
    return Error{.code = ErrorCode::bad_input, .message = why};
  };
  if (accesses.size() < expected.size() || (!more && accesses.size() > expected.size())) {
    return bad(std::string(which) + " " + std::to_string(accesses.size()) + " tensors where " +
               std::to_string(expected.size()) + " belong");
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const Bytes bytes{expected[i].elements * expected[i].size};
    if (!covers(trace, accesses[i]) || accesses[i].length != bytes) {
      return bad(std::string(which) + " " + trace[accesses[i].tensor].name + " in part or in " +
                 std::to_string(accesses[i].length.count) + " bytes where " +
                 std::to_string(bytes.count) + " follow from the attributes");
    }
  }
  return Ok{};
}

}  // namespace superneurons
