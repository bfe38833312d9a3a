#include "tracer/activity_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <unordered_map>

namespace superneurons {
namespace {

constexpr std::size_t kBlock = 1U << 18;        // characters gathered before they are written
constexpr std::size_t kMostWaiting = 8U << 20;  // characters kept until device work comes

// From here on names are shortened, so that a program which numbers its ranges costs it no more.
constexpr std::size_t kManyNames = kMostNames / 16;
constexpr std::size_t kManyNameBytes = kMostNameBytes / 8;
constexpr std::size_t kLongestName = 1U << 12;  // from there on
constexpr std::string_view kNameless = "(one name too many)";

std::string_view kind_of(DeviceWork kind) {
  return kind == DeviceWork::kernel ? "kernel" : kind == DeviceWork::copy ? "copy" : "set";
}

}  // namespace

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out += '\\';
    if (byte >= 0x20 && byte < 0x7f) out += c;
    else if (byte >= 0x7f) out += '?';
  }
  out += '"';
}

struct ActivityWriter::State {
  std::string path;
  std::int64_t base = 0;
  std::string text;
  std::unordered_map<std::string, std::uint32_t> names;
  std::size_t name_bytes = 0;
  std::string key;  // scratch
  std::int64_t works = 0, lost = 0;
  std::size_t head = 0;  // characters of the header
  int file = -1;
  bool wanted = false;  // device work or an allocation came
  bool good = true;

  template <class... Values>
  void add(fmt::format_string<Values...> form, Values&&... values) {
    fmt::format_to(std::back_inserter(text), form, std::forward<Values>(values)...);
  }
  std::int64_t since(std::int64_t at) const { return std::max<std::int64_t>(at - base, 0); }

  /// What a name is called, now that there are so many.
  std::string_view affordable(std::string_view what) const {
    if (names.size() < kManyNames && name_bytes + what.size() < kManyNameBytes) return what;
    what = plain_range_name(what).substr(0, kLongestName);
    const bool full = names.size() + 1 >= kMostNames / 2 || name_bytes >= kMostNameBytes / 2;
    return full ? kNameless : what;
  }

  std::uint32_t name(std::string_view what) {
    key = what;
    if (names.find(key) == names.end()) key = what = affordable(what);
    const auto [entry, added] = names.try_emplace(key, static_cast<std::uint32_t>(names.size()));
    if (added) {
      name_bytes += what.size();
      add("{{\"r\":\"name\",\"id\":{},\"text\":", entry->second);
      append_quoted(text, what);
      text += "}\n";
    }
    return entry->second;
  }

  /// Writes whole lines.
  void write() {
    if (!wanted) {
      if (text.size() > kMostWaiting) {  // a program that marks ranges and uses no device
        ++lost;
        text.resize(head);
        names.clear();
        name_bytes = 0;
      }
      return;
    }
    if (file < 0 && good) {
      file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
      good = file >= 0;
    }
    std::string_view rest = text;
    while (good && !rest.empty()) {
      const ssize_t written = ::write(file, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      good = written > 0;
      if (good) rest.remove_prefix(static_cast<std::size_t>(written));
    }
    text.clear();
  }

  /// What memory does not suffice for counts as lost; the lines so far stay whole.
  template <class Fill>
  void line(const Fill& fill) noexcept {
    const std::size_t before = text.size(), named = names.size();
    try {
      fill();
    } catch (...) {
      ++lost;
      text.resize(before);
      std::erase_if(names, [named](const auto& one) { return one.second >= named; });
      return;
    }
    if (text.size() >= kBlock) write();
  }
};

ActivityWriter::ActivityWriter(std::string path, const ActivityHeader& header)
    : state_(std::make_unique<State>()) {
  state_->path = std::move(path);
  state_->base = header.base;
  state_->add(
      "{{\"r\":\"header\",\"format\":\"superneurons-activities\",\"version\":\"0.1\","
      "\"process\":{},\"command\":",
      header.process);
  append_quoted(state_->text, header.command);
  state_->text += "}\n";
  state_->head = state_->text.size();
}

ActivityWriter::~ActivityWriter() {
  if (state_->file >= 0) ::close(state_->file);
}

void ActivityWriter::work(const SeenWork& work, std::string_view name) noexcept {
  State& to = *state_;
  to.wanted = true;
  if (is_timeless(work)) return dropped(1);
  to.line([&] {
    const std::uint32_t id = to.name(name);
    to.add("{{\"r\":\"{}\",\"name\":{},\"call\":{},\"stream\":{},\"start\":{},\"end\":{}",
           kind_of(work.kind), id, work.call, work.stream, to.since(work.start),
           to.since(work.end));
    if (work.kind != DeviceWork::kernel) to.add(",\"bytes\":{}", work.bytes);
    to.text += "}\n";
    ++to.works;
  });
}

void ActivityWriter::tag(const TagActivity& tag) noexcept {
  State& to = *state_;
  to.line([&] {
    to.add("{{\"r\":\"tag\",\"call\":{},\"tag\":{}}}\n", tag.correlation,
           static_cast<std::int64_t>(tag.tag));
  });
}

void ActivityWriter::call(const SeenCall& call, std::string_view name) noexcept {
  State& to = *state_;
  to.line([&] {
    const std::uint32_t id = to.name(name);
    to.add("{{\"r\":\"call\",\"name\":{},\"call\":{},\"thread\":{},\"start\":{},\"end\":{}}}\n", id,
           call.call, call.thread, to.since(call.start), to.since(call.end));
  });
}

void ActivityWriter::memory(const SeenMemory& memory) noexcept {
  State& to = *state_;
  to.wanted = true;
  to.line([&] {
    to.add("{{\"r\":\"{}\",\"address\":{},\"bytes\":{},\"at\":{}}}\n",
           memory.allocates ? "allocate" : "free", memory.address, memory.bytes,
           to.since(memory.at));
  });
}

void ActivityWriter::mark(const SeenMark& mark, std::string_view name) noexcept {
  State& to = *state_;
  to.line([&] {
    if (!mark.begins) {
      to.add("{{\"r\":\"close\",\"range\":{},\"at\":{}}}\n", mark.id, to.since(mark.at));
      return;
    }
    const std::uint32_t id = to.name(name);
    to.add("{{\"r\":\"open\",\"range\":{},\"name\":{},\"thread\":{},\"at\":{}}}\n", mark.id, id,
           mark.thread, to.since(mark.at));
  });
}

void ActivityWriter::dropped(std::int64_t records) noexcept { state_->lost += records; }

void ActivityWriter::flush() noexcept { state_->write(); }

bool ActivityWriter::finish() noexcept {
  State& to = *state_;
  if (!to.wanted) return true;
  to.line(
      [&] { to.add("{{\"r\":\"end\",\"activities\":{},\"dropped\":{}}}\n", to.works, to.lost); });
  to.write();
  if (to.file >= 0) to.good = ::close(std::exchange(to.file, -1)) == 0 && to.good;
  return to.good;
}

}  // namespace superneurons
