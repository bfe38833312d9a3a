// One list of fields per record, used both ways: `fields(archive, record)` names each key once, and
// the archive is a FieldReader (JSON -> record) or a FieldWriter (record -> canonical JSON).
//
//     template <class Archive, class TensorType>
//     void fields(Archive& archive, TensorType& tensor) {
//       archive.required("name", tensor.name);
//       archive.optional("dtype", tensor.dtype, Tensor{}.dtype);  // not written if equal to that
//     }
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <type_traits>

#include "ir/device_profile.h"
#include "ir/json.h"
#include "ir/plan.h"
#include "ir/trace.h"

namespace superneurons {

constexpr const auto& names_of(Role) { return kRoleNames; }
constexpr const auto& names_of(Phase) { return kPhaseNames; }
constexpr const auto& names_of(Capability) { return kCapabilityNames; }
constexpr const auto& names_of(Place) { return kPlaceNames; }

class FieldReader {
 public:
  /// `what` and `index` (if >= 0) name the record in messages. `tensors`, where given, are those
  /// known so far, whose sizes whole accesses take.
  FieldReader(JsonValue object, std::string_view what, std::int64_t index = -1,
              const std::vector<Tensor>* tensors = nullptr)
      : object_(object), what_(what), index_(index), tensors_(tensors) {
    if (!object.is(JsonKind::object)) fail(object.describe() + " (would be an object)");
  }

  static constexpr bool kReads = true;
  /// What is wrong with the first bad field; "" while all is well.
  const std::string& problem() const { return problem_; }
  void fail(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  template <class T>
  void required(std::string_view key, T& out) {
    if (!problem_.empty()) return;
    if (const auto value = object_.find(key)) take(key, *value, out);
    else fail(fmt::format("{} lacks \"{}\"", subject(), key));
  }
  template <class T, class Plain>
  void optional(std::string_view key, T& out, const Plain&) {
    optional(key, out);
  }
  template <class T>
  void optional(std::string_view key, T& out) {
    if (!problem_.empty()) return;
    if (const auto value = object_.find(key)) take(key, *value, out);
  }

 private:
  std::string subject() const {
    return index_ >= 0 ? fmt::format("{} {}", what_, index_) : std::string(what_);
  }
  template <class T>
  void take(std::string_view key, JsonValue value, T& out) {
    if (get(value, out) || !problem_.empty()) return;
    fail(fmt::format("\"{}\" of {} {} {} (would be {})", key, subject(),
                     value.describe() == wrong_ ? "is" : "holds", wrong_, right_));
  }
  bool expected(JsonValue value, std::string right) {
    wrong_ = value.describe();
    right_ = std::move(right);
    return false;
  }

  bool get(JsonValue value, std::string& out) {
    if (!value.is(JsonKind::text)) return expected(value, "a text in quotes");
    return out = value.text(), true;
  }
  bool get(JsonValue value, bool& out) {
    if (!value.is(JsonKind::boolean)) return expected(value, "true or false");
    return out = value.integer() != 0, true;
  }
  bool get(JsonValue value, double& out) {
    if (!value.is(JsonKind::integer) && !value.is(JsonKind::number))
      return expected(value, "a number");
    return out = value.number(), true;
  }
  template <class Integer>
  requires std::is_integral_v<Integer>
  bool get(JsonValue value, Integer& out) {
    using Limits = std::numeric_limits<Integer>;
    if (!value.is(JsonKind::integer) ||
        value.integer() < static_cast<std::int64_t>(Limits::min()) ||
        value.integer() > static_cast<std::int64_t>(Limits::max()))
      return expected(value,
                      fmt::format("a whole number from {} to {}", Limits::min(), Limits::max()));
    return out = static_cast<Integer>(value.integer()), true;
  }
  template <class Unit>
  bool get(JsonValue value, Quantity<Unit>& out) {
    return get(value, out.count);
  }
  template <class Table>
  bool get(JsonValue value, Id<Table>& out) {
    return get(value, out.index);
  }
  bool get(JsonValue value, std::optional<OpId>& out) { return get(value, out.emplace()); }
  template <class Enum>
  requires std::is_enum_v<Enum>
  bool get(JsonValue value, Enum& out) {
    const auto& names = names_of(out);
    const auto found = value.is(JsonKind::text)
                           ? std::find(names.begin(), names.end(), value.text())
                           : names.end();
    if (found == names.end()) {
      std::string all = "one of";
      for (const std::string_view name : names) all.append(" ").append(name);
      return expected(value, std::move(all));
    }
    return out = static_cast<Enum>(found - names.begin()), true;
  }
  template <class T>
  bool get(JsonValue value, std::vector<T>& out) {
    if (!value.is(JsonKind::array)) return expected(value, "an array");
    std::size_t size = 0;
    for ([[maybe_unused]] const JsonValue element : value) ++size;
    out.clear();
    out.reserve(size);
    for (const JsonValue element : value)
      if (!get(element, out.emplace_back())) return false;
    return true;
  }
  template <class T>
  bool get(JsonValue value, std::map<std::string, T>& out) {
    if (!value.is(JsonKind::object)) return expected(value, "an object");
    for (const JsonValue member : value)
      if (!get(member, out.try_emplace(std::string(member.key())).first->second)) return false;
    return true;
  }
  /// Two values in an array.
  template <class A, class B>
  bool get_pair(JsonValue value, A& a, B& b, const char* right) {
    auto element = value.begin();
    if (!value.is(JsonKind::array) || !(element != value.end())) return expected(value, right);
    if (!get(*element, a)) return false;
    if (!(++element != value.end())) return expected(value, right);
    if (!get(*element, b)) return false;
    if (++element != value.end()) return expected(value, right);
    return true;
  }
  bool get(JsonValue value, Kernel& out) { return get_pair(value, out.name, out.ns, "[name, ns]"); }
  bool get(JsonValue value, TransferCurve::Point& out) {
    return get_pair(value, out.bytes, out.ns, "[bytes, ns]");
  }
  bool get(JsonValue value, Access& out) {
    if (value.is(JsonKind::array)) {
      std::vector<std::int64_t> range;
      if (!get(value, range)) return false;
      if (range.size() != 3 || range[0] < 0 || range[0] > UINT32_MAX)
        return expected(value, "[tensor, offset, length] or a tensor");
      out = {{static_cast<std::uint32_t>(range[0])}, {range[1]}, {range[2]}};
    } else if (!get(value, out.tensor)) {
      return false;
    }
    if (out.tensor.index >= tensors_->size()) {
      fail(fmt::format("{} accesses tensor {}, of which there is none so far (tensors: {})",
                       subject(), out.tensor.index, tensors_->size()));
      return false;
    }
    if (!value.is(JsonKind::array)) out.length = (*tensors_)[out.tensor.index].bytes;
    return true;
  }
  template <class Record>
  requires std::is_class_v<Record>
  bool get(JsonValue value, Record& out) {
    if (!value.is(JsonKind::object)) return expected(value, "an object");
    FieldReader inner(value, what_, index_, tensors_);
    fields(inner, out);
    if (inner.problem().empty()) return true;
    fail(inner.problem());
    return false;
  }

  JsonValue object_;
  std::string_view what_;
  std::int64_t index_;
  const std::vector<Tensor>* tensors_;
  std::string problem_, wrong_, right_;
};

class FieldWriter {
 public:
  /// Appends one object to `out`. `tensors`, where given, are those that accesses refer to.
  /// `before_key` stands before each key: "\n  " gives one line per field.
  explicit FieldWriter(std::string& out, const std::vector<Tensor>* tensors = nullptr,
                       std::string_view before_key = "")
      : out_(out), tensors_(tensors), before_key_(before_key) {
    out_ += '{';
  }
  void close() { out_ += before_key_.empty() ? "}" : "\n}"; }

  static constexpr bool kReads = false;
  template <class T>
  void required(std::string_view key, const T& value) {
    if (!first_) out_ += ',';
    first_ = false;
    out_ += before_key_;
    out_ += '"';
    out_ += key;
    out_ += "\":";
    put(value);
  }
  template <class T, class Plain>
  void optional(std::string_view key, const T& value, const Plain& plain) {
    if (!(value == plain)) required(key, value);
  }
  /// A container, not written if empty, or a record, always written.
  template <class T>
  void optional(std::string_view key, const T& value) {
    if constexpr (requires { value.empty(); }) {
      if (!value.empty()) required(key, value);
    } else {
      required(key, value);
    }
  }
  void optional(std::string_view key, const std::optional<OpId>& value) {
    if (value) required(key, *value);
  }

 private:
  void put(std::string_view value) { append_json_text(out_, value); }
  void put(const std::string& value) { append_json_text(out_, value); }
  void put(bool value) { out_ += value ? "true" : "false"; }
  void put(double value) { append_json_number(out_, value); }
  template <class Integer>
  requires std::is_integral_v<Integer>
  void put(Integer value) { append_json_number(out_, static_cast<std::int64_t>(value)); }
  template <class Unit>
  void put(Quantity<Unit> value) {
    append_json_number(out_, value.count);
  }
  template <class Table>
  void put(Id<Table> value) {
    put(value.index);
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void put(Enum value) {
    const auto index = static_cast<std::size_t>(value);
    put(index < names_of(value).size() ? names_of(value)[index] : std::string_view("?"));
  }
  template <class T>
  void put(const std::vector<T>& values) {
    out_ += '[';
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (i > 0) out_ += ',';
      put(values[i]);
    }
    out_ += ']';
  }
  template <class T>
  void put(const std::map<std::string, T>& values) {
    FieldWriter inner(out_, tensors_);
    for (const auto& [key, value] : values) inner.member(key, value);
    inner.close();
  }
  template <class T>
  void member(const std::string& key, const T& value) {
    if (!first_) out_ += ',';
    first_ = false;
    append_json_text(out_, key);
    out_ += ':';
    put(value);
  }
  void put(const Kernel& kernel) {
    out_ += '[';
    put(kernel.name);
    out_ += ',';
    put(kernel.ns);
    out_ += ']';
  }
  void put(const TransferCurve::Point& point) {
    put(std::vector<std::int64_t>{point.bytes.count, point.ns.count});
  }
  void put(const Access& access) {
    const bool known = access.tensor.index < tensors_->size();
    if (known && access.offset.count == 0 &&
        access.length == (*tensors_)[access.tensor.index].bytes)
      return put(access.tensor);
    put(std::vector<std::int64_t>{access.tensor.index, access.offset.count, access.length.count});
  }
  template <class Record>
  requires std::is_class_v<Record>
  void put(const Record& record) {
    FieldWriter inner(out_, tensors_);
    fields(inner, record);
    inner.close();
  }

  std::string& out_;
  const std::vector<Tensor>* tensors_;
  std::string_view before_key_;
  bool first_ = true;
};

}  // namespace superneurons
