// One error type, returned. Only `main` prints and exits; asserts are for our own bugs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "ir/units.h"

namespace superneurons {

enum class ErrorCode {
  bad_input,     // a file or a value in it is wrong (exit code 2)
  bad_usage,     // the call is wrong: unknown name, missing capability (exit code 2)
  does_not_fit,  // an ordinary answer: no such plan under this budget (exit code 1)
  not_equal,     // a replay gave other results than its reference (exit code 1)
  unlawful,      // the checker rejected a plan (exit code 1)
  io,            // reading or writing failed (exit code 2)
  device,        // the GPU or its libraries refused (exit code 2)
  cancelled,     // the stop token was set (exit code 130)
};

/// What is missing when something does not fit.
struct Shortage {
  Bytes short_by{};         // bytes wanted beyond what was free at the failing place
  Bytes largest_hole{};     // largest contiguous free range there
  Bytes smallest_budget{};  // 0 if unknown: the smallest device budget that would work
  std::string op;           // the op at which it failed, or that sets the floor
};

struct Error {
  ErrorCode code = ErrorCode::bad_input;
  std::string message{};  // what is wrong (what would be right)
  std::string file{};     // "" where no file is involved
  std::int64_t line = 0;  // 1-based; 0 where there is none
  std::optional<Shortage> shortage{};
};

/// A value or an Error. Test with `if (!result)` before `*result`.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}
  Result(Error error) : state_(std::move(error)) {}

  explicit operator bool() const { return state_.index() == 0; }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T&& operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  Error& error() { return std::get<1>(state_); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

struct Ok {};
using Status = Result<Ok>;

}  // namespace superneurons
