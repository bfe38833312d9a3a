#include "ir/trace_io.h"

#include <bit>
#include <cstring>

#include "ir/files.h"
#include "ir/record.h"
#include "ir/trace_fault.h"

namespace superneurons {

// Not in the unnamed namespace: the archives find them by their arguments.
template <class Archive, class TensorType>
requires std::is_same_v<std::remove_const_t<TensorType>, Tensor>
void fields(Archive& archive, TensorType& tensor) {
  static const Tensor plain;
  archive.required("name", tensor.name);
  archive.required("bytes", tensor.bytes);
  archive.optional("dtype", tensor.dtype, plain.dtype);
  archive.optional("shape", tensor.shape);
  archive.optional("layer", tensor.layer, plain.layer);
  archive.required("role", tensor.role);
  archive.optional("freed_before", tensor.freed_before);
  archive.optional("init", tensor.init, plain.init);
  archive.optional("init_scale", tensor.init_scale, plain.init_scale);
}

template <class Archive, class ChoiceType>
requires std::is_same_v<std::remove_const_t<ChoiceType>, Choice>
void fields(Archive& archive, ChoiceType& choice) {
  static const Choice plain;
  archive.optional("algorithm", choice.algorithm, plain.algorithm);
  archive.optional("math", choice.math, plain.math);
  archive.optional("workspace", choice.workspace, plain.workspace);
  archive.optional("ns", choice.ns, plain.ns);
  archive.optional("deterministic", choice.deterministic, plain.deterministic);
  archive.optional("omits", choice.omits);
}

template <class Archive, class OpType>
requires std::is_same_v<std::remove_const_t<OpType>, Op>
void fields(Archive& archive, OpType& op) {
  static const Op plain;
  archive.required("name", op.name);
  archive.required("kind", op.kind);
  archive.optional("phase", op.phase, plain.phase);
  archive.optional("layer", op.layer, plain.layer);
  archive.optional("reads", op.reads);
  archive.optional("writes", op.writes);
  archive.optional("once", op.once);
  archive.required("choices", op.choices);
  archive.optional("recorded", op.recorded, plain.recorded);
  archive.optional("kernels", op.kernels);
  archive.optional("attributes", op.attributes);
  archive.optional("rerunnable", op.rerunnable, plain.rerunnable);
  archive.optional("random", op.random, plain.random);
  archive.optional("micro_batch", op.micro_batch, plain.micro_batch);
  archive.optional("launch_group", op.launch_group, plain.launch_group);
  archive.optional("host_ns", op.host_ns, plain.host_ns);
  archive.optional("host_sync_ns", op.host_sync_ns, plain.host_sync_ns);
  archive.optional("flops", op.flops, plain.flops);
  archive.optional("bytes_moved", op.bytes_moved, plain.bytes_moved);
}

namespace {

constexpr std::string_view kFormat = "superneurons-trace";

template <class Archive, class TraceType>
void header_fields(Archive& archive, TraceType& trace) {
  static const Trace plain;
  archive.required("name", trace.name);
  archive.optional("origin", trace.origin, plain.origin);
  archive.optional("device", trace.device, plain.device);
  archive.optional("lowering", trace.lowering, plain.lowering);
  archive.optional("network", trace.network, plain.network);
  archive.optional("batch", trace.batch, plain.batch);
  archive.optional("math", trace.math, plain.math);
  archive.optional("step_ns_untraced", trace.step_ns_untraced, plain.step_ns_untraced);
  archive.optional("step_ns_traced", trace.step_ns_traced, plain.step_ns_traced);
  archive.optional("dropped_records", trace.dropped_records, plain.dropped_records);
  archive.optional("allocated_peak", trace.allocated_peak, plain.allocated_peak);
  archive.optional("reserved_peak", trace.reserved_peak, plain.reserved_peak);
  archive.optional("owned_ns", trace.owned_ns, plain.owned_ns);
  archive.optional("orphan_ns", trace.orphan_ns, plain.orphan_ns);
  archive.optional("orphans", trace.orphans, plain.orphans);
}

std::int64_t total_bytes(const Trace& trace) {
  std::uint64_t sum = 0;  // wraps in a trace that find_fault refuses
  for (const Tensor& tensor : trace.tensors) sum += static_cast<std::uint64_t>(tensor.bytes.count);
  return static_cast<std::int64_t>(sum);
}

struct TraceReader {
  Trace trace;
  const std::int64_t* line = nullptr;  // of the current record
  std::vector<std::uint32_t> tensor_lines, op_lines, carry_lines;
  std::string wrong_bytes;  // of the end record; a fault of a tensor's own size goes first

  static Status status(const FieldReader& reader) {
    if (reader.problem().empty()) return Ok{};
    return Error{.message = reader.problem()};
  }

  Status header(JsonValue record) {
    FieldReader reader(record, "the header");
    header_fields(reader, trace);
    std::map<std::string, Capability> capabilities;
    reader.optional("capabilities", capabilities);
    for (std::size_t i = 0; i < kFactNames.size(); ++i) {
      const auto found = capabilities.find(std::string(kFactNames[i]));
      if (found != capabilities.end()) trace.capabilities[i] = found->second;
    }
    return status(reader);
  }

  /// Reads one row of a table; ids are given, and must count up from 0, so that a person can look
  /// them up and a lost line is noticed.
  template <class T>
  Status row(JsonValue record, std::string_view what, std::vector<T>& table,
             std::vector<std::uint32_t>& lines) {
    const auto next = static_cast<std::int64_t>(table.size());
    T item;
    FieldReader reader(record, what, next, &trace.tensors);
    std::uint32_t id = 0;
    reader.required("id", id);
    if (id < next)
      reader.fail("a second " + std::string(what) + ' ' + std::to_string(id) + " (would be " +
                  std::to_string(next) + ')');
    if (id > next)
      reader.fail(std::string(what) + ' ' + std::to_string(id) + " comes where " +
                  std::to_string(next) + " is due");
    fields(reader, item);
    table.push_back(std::move(item));
    lines.push_back(static_cast<std::uint32_t>(*line));
    return status(reader);
  }

  Status record(JsonValue record, std::string_view kind) {
    if (kind == "op") return row(record, "op", trace.ops, op_lines);
    if (kind == "tensor") return row(record, "tensor", trace.tensors, tensor_lines);
    if (kind == "carry") {
      Carry carry;
      FieldReader reader(record, "carry", static_cast<std::int64_t>(trace.carry.size()));
      reader.required("start", carry.start);
      carry.end = carry.start;
      reader.optional("end", carry.end);
      trace.carry.push_back(carry);
      carry_lines.push_back(static_cast<std::uint32_t>(*line));
      return status(reader);
    }
    if (kind == "end") return totals(record);
    if (kind.empty())
      return Error{.message = "a record without a kind (would have \"r\":\"op\" ...)"};
    return Ok{};  // of a newer version
  }

  Status totals(JsonValue end) {
    const std::pair<const char*, std::size_t> counts[] = {{"tensors", trace.tensors.size()},
                                                          {"ops", trace.ops.size()},
                                                          {"carry", trace.carry.size()}};
    for (const auto& [key, count] : counts) {
      Status same = compare_count(end, key, static_cast<std::int64_t>(count));
      if (!same) return same;
    }
    Status same = compare_count(end, "bytes", total_bytes(trace));
    if (!same) wrong_bytes = same.error().message;
    return Ok{};
  }

  std::string progress() const {
    const auto last = [](const char* what, const auto& table) {
      return std::string(what) + std::to_string(table.size() - 1) + " \"" + table.back().name + '"';
    };
    if (!trace.ops.empty()) return last("op ", trace.ops);
    if (!trace.tensors.empty()) return last("tensor ", trace.tensors);
    return "the header";
  }

  std::int64_t line_of(const Fault& fault) const {
    switch (fault.record) {
      case Fault::Record::tensor:
        return tensor_lines[fault.index];
      case Fault::Record::op:
        return op_lines[fault.index];
      case Fault::Record::carry:
        return carry_lines[fault.index];
      case Fault::Record::header:
        break;
    }
    return 1;
  }
};

/// `feed(line)` gives all lines to `line` and returns the first error.
template <class Feed>
Result<Trace> read(const std::string& name, const Feed& feed) {
  TraceReader reader;
  RecordLines lines(reader, kFormat, name);
  std::int64_t number = 0;
  reader.line = &number;
  bool refused = false;
  Status status = feed([&](std::string_view text, std::int64_t at) {
    number = at;
    Status one = lines.line(text, at);
    refused |= !one;
    return one;
  });
  if (!status) {
    Error& error = status.error();
    if (!refused && number > 0)
      error.message += "; the trace breaks off after " + reader.progress();
    return std::move(error);
  }
  status = lines.finish();
  if (!status) return std::move(status.error());
  if (const auto fault = locate_fault(reader.trace))
    return Error{ErrorCode::bad_input, fault->message, name, reader.line_of(*fault)};
  if (!reader.wrong_bytes.empty()) return lines.error(reader.wrong_bytes);
  return std::move(reader.trace);
}

/// Calls `sink` with the canonical text in pieces of at least a line, so that it never is in memory
/// whole.
template <class Sink>
class CanonicalText {
 public:
  CanonicalText(const Trace& trace, Sink sink) : trace_(trace), sink_(std::move(sink)) {}

  void write() {
    header();
    rows("tensor", trace_.tensors);
    rows("op", trace_.ops);
    for (const Carry& carry : trace_.carry) {
      line([&](FieldWriter& writer) {
        writer.required("r", std::string_view("carry"));
        writer.required("start", carry.start);
        writer.optional("end", carry.end, carry.start);
      });
    }
    line([&](FieldWriter& writer) {
      writer.required("r", std::string_view("end"));
      writer.required("tensors", trace_.tensors.size());
      writer.required("ops", trace_.ops.size());
      writer.required("carry", trace_.carry.size());
      writer.required("bytes", total_bytes(trace_));
    });
    flush();
  }

 private:
  static constexpr std::size_t kPiece = 1 << 16;

  template <class Fill>
  void line(const Fill& fill) {
    FieldWriter writer(out_, &trace_.tensors);
    fill(writer);
    writer.close();
    out_ += '\n';
    if (out_.size() >= kPiece) flush();
  }

  void header() {
    line([&](FieldWriter& writer) {
      writer.required("r", std::string_view("header"));
      writer.required("format", kFormat);
      writer.required("version", kFormatVersion);
      header_fields(writer, trace_);
      std::map<std::string, Capability> capabilities;
      for (std::size_t i = 0; i < kFactNames.size(); ++i)
        if (trace_.capabilities[i] != Capability::none)
          capabilities[std::string(kFactNames[i])] = trace_.capabilities[i];
      writer.optional("capabilities", capabilities);
    });
  }

  template <class T>
  void rows(std::string_view what, const std::vector<T>& table) {
    for (std::size_t i = 0; i < table.size(); ++i) {
      line([&](FieldWriter& writer) {
        writer.required("r", what);
        writer.required("id", i);
        fields(writer, table[i]);
      });
    }
  }

  void flush() {
    sink_(std::string_view(out_));
    out_.clear();
  }

  const Trace& trace_;
  Sink sink_;
  std::string out_;
};

template <class Sink>
void write_canonical(const Trace& trace, Sink sink) {
  CanonicalText<Sink>(trace, std::move(sink)).write();
}

/// Hash of a text that comes in pieces: 8 bytes at a time, the last word padded with zeros.
class TextHash {
 public:
  explicit TextHash(std::size_t size) : hash_(0x9e3779b97f4a7c15ULL ^ size) {}

  void add(std::string_view text) {
    if (!rest_.empty()) {
      const std::size_t missing = std::min(8 - rest_.size(), text.size());
      rest_ += text.substr(0, missing);
      text.remove_prefix(missing);
      if (rest_.size() < 8) return;
      mix(rest_);
      rest_.clear();
    }
    for (; text.size() >= 8; text.remove_prefix(8)) mix(text.substr(0, 8));
    rest_ = text;
  }

  std::uint64_t finish() {
    if (!rest_.empty()) mix(rest_);
    hash_ *= 0xc4ceb9fe1a85ec53ULL;
    return hash_ ^ (hash_ >> 32);
  }

 private:
  void mix(std::string_view bytes) {
    static_assert(std::endian::native == std::endian::little);
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), bytes.size());
    hash_ = (hash_ ^ word) * 0xff51afd7ed558ccdULL;
    hash_ ^= hash_ >> 32;
  }

  std::uint64_t hash_;
  std::string rest_;  // less than a word
};

}  // namespace

Result<Trace> read_trace(const std::string& path) {
  return read(path, [&](const auto& line) { return for_each_line(path, line); });
}

Result<Trace> parse_trace(std::string_view text, const std::string& name) {
  return read(name, [&](const auto& line) { return for_each_line_of(text, name, line); });
}

std::string format_trace(const Trace& trace) {
  std::string out;
  write_canonical(trace, [&](std::string_view piece) { out += piece; });
  return out;
}

Status write_trace(const Trace& trace, const std::string& path) {
  // What cannot be read back is not worth a file.
  if (auto fault = find_fault(trace)) {
    fault->file = path;
    return std::move(*fault);
  }
  return write_file(path, format_trace(trace));
}

std::string trace_hash(const Trace& trace) {
  std::size_t size = 0;
  write_canonical(trace, [&](std::string_view piece) { size += piece.size(); });
  TextHash text(size);
  write_canonical(trace, [&](std::string_view piece) { text.add(piece); });
  const std::uint64_t hash = text.finish();
  std::string digits(16, '0');
  for (std::size_t i = 0; i < 16; ++i) digits[i] = "0123456789abcdef"[hash >> (60 - 4 * i) & 15];
  return digits;
}

}  // namespace superneurons
