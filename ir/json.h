// JSON text as a flat list of nodes, kept between lines so that reading a record allocates almost
// nothing. Used by the readers in ir/; hostile input is an error text, never an exception.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace superneurons {

inline constexpr int kDeepestJson = 16;                  // nesting that a reader accepts
inline constexpr std::size_t kMostJsonNodes = 1U << 21;  // values in one text, for 80 MiB of nodes

enum class JsonKind : std::uint8_t { null, boolean, integer, number, text, array, object };

/// `{"a":[1,2]}` is object, array (key a), 1, 2: children follow their parent, and `next` is the
/// node after the whole subtree.
struct JsonNode {
  JsonKind kind = JsonKind::null;
  std::uint32_t next = 0;
  std::uint32_t key = 0, key_size = 0;    // range of the document's characters
  std::uint32_t text = 0, text_size = 0;  // kind text
  std::int64_t integer = 0;               // kinds integer and boolean
  double number = 0;                      // kinds integer and number
};

class JsonValue;

class JsonDocument {
 public:
  /// Replaces the document by `text`, one JSON value. Returns what is wrong with it, or nothing.
  std::optional<std::string> parse(std::string_view text);
  /// After a bad parse: bytes before the place where it failed, 0 if unknown.
  std::size_t problem_offset() const { return problem_offset_; }
  /// After a good parse: the first key that an object has twice, or nothing. Which of the two
  /// counts would be anybody's guess, so that readers refuse it.
  const std::optional<std::string>& repeated_key() const { return repeated_key_; }
  /// Valid after a good parse and until the next one.
  JsonValue root() const;

 private:
  friend class JsonValue;
  friend class JsonBuilder;
  std::vector<JsonNode> nodes_;
  std::string characters_;
  std::size_t problem_offset_ = 0;
  std::optional<std::string> repeated_key_;
};

/// A node of a document that outlives it.
class JsonValue {
 public:
  JsonValue(const JsonDocument& document, std::uint32_t index)
      : document_(&document), index_(index) {}

  JsonKind kind() const { return node().kind; }
  bool is(JsonKind kind) const { return node().kind == kind; }
  std::int64_t integer() const { return node().integer; }
  double number() const { return node().number; }
  std::string_view text() const { return characters(node().text, node().text_size); }
  std::string_view key() const { return characters(node().key, node().key_size); }
  /// The member of an object.
  std::optional<JsonValue> find(std::string_view name) const;
  /// For messages: `-5`, `"abc"`, `an array` ...
  std::string describe() const;

  struct Iterator {
    const JsonDocument* document;
    std::uint32_t index;
    JsonValue operator*() const { return {*document, index}; }
    Iterator& operator++() { return index = document->nodes_[index].next, *this; }
    bool operator!=(const Iterator& other) const { return index != other.index; }
  };
  /// The elements of an array, the members of an object, nothing otherwise.
  Iterator begin() const { return {document_, index_ + 1}; }
  Iterator end() const { return {document_, node().next}; }

 private:
  const JsonNode& node() const { return document_->nodes_[index_]; }
  std::string_view characters(std::uint32_t begin, std::uint32_t size) const {
    return std::string_view(document_->characters_).substr(begin, size);
  }
  const JsonDocument* document_;
  std::uint32_t index_;
};

inline JsonValue JsonDocument::root() const { return {*this, 0}; }

/// Appends `text` as a JSON string; bytes that are no UTF-8 become U+FFFD.
void append_json_text(std::string& out, std::string_view text);
/// Appends the shortest text that reads back as the same number; `null` if it is not finite.
void append_json_number(std::string& out, double number);
void append_json_number(std::string& out, std::int64_t number);

}  // namespace superneurons
