// Activity logs written by hand, a program's calls one after the other.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <string>

namespace superneurons {

/// The host's clock goes on by 10 ns per line; the device starts 100 ns after the call, or when the
/// kernel before has ended.
class SyntheticLog {
 public:
  SyntheticLog() {
    text = "{\"r\":\"header\",\"format\":\"superneurons-activities\",\"version\":\"0.1\"}\n";
  }

  std::string text;
  std::int64_t now = 0;     // of the host
  std::int64_t device = 0;  // until then it is busy
  std::uint32_t calls = 0;
  std::int64_t works = 0;
  std::uint32_t thread = 1;

  void kernel(const std::string& name, std::int64_t ns) { launch("kernel", name, ns, 0); }
  void copy(const std::string& direction, std::int64_t bytes, std::int64_t ns) {
    launch("copy", "memcpy " + direction, ns, bytes);
  }
  void allocate(std::uint64_t address, std::int64_t bytes) { memory("allocate", address, bytes); }
  void free(std::uint64_t address, std::int64_t bytes) { memory("free", address, bytes); }
  void open(std::uint32_t range, const std::string& name) {
    const std::uint32_t id = name_id(name);
    line(R"({{"r":"open","range":{},"name":{},"thread":{},"at":{}}})", range, id, thread, now);
  }
  void close(std::uint32_t range) { line(R"({{"r":"close","range":{},"at":{}}})", range, now); }
  /// The host waits until the device is done.
  void synchronize() {
    const std::uint32_t id = name_id("cudaDeviceSynchronize");
    const std::int64_t start = now;
    now = std::max(now, device);
    line(R"({{"r":"call","name":{},"call":{},"thread":{},"start":{},"end":{}}})", id, ++calls,
         thread, start, now);
  }
  void pause(std::int64_t ns) { now += ns; }

  std::string finish(std::int64_t dropped = 0) const {
    return text +
           fmt::format("{{\"r\":\"end\",\"activities\":{},\"dropped\":{}}}\n", works, dropped);
  }

  template <class... Values>
  void line(fmt::format_string<Values...> form, Values&&... values) {
    fmt::format_to(std::back_inserter(text), form, std::forward<Values>(values)...);
    text += '\n';
    now += 10;
  }
  std::uint32_t name_id(const std::string& name) {
    const auto [entry, added] = names_.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
    if (added)
      text += fmt::format("{{\"r\":\"name\",\"id\":{},\"text\":\"{}\"}}\n", entry->second, name);
    return entry->second;
  }

 private:
  void launch(const char* kind, const std::string& name, std::int64_t ns, std::int64_t bytes) {
    const std::uint32_t call_name = name_id("cudaLaunchKernel");
    line(R"({{"r":"call","name":{},"call":{},"thread":{},"start":{},"end":{}}})", call_name,
         ++calls, thread, now, now + 5);
    const std::uint32_t id = name_id(name);
    const std::int64_t start = std::max(device, now + 90);
    device = start + ns;
    text +=
        fmt::format(R"({{"r":"{}","name":{},"call":{},"stream":7,"start":{},"end":{},"bytes":{}}})",
                    kind, id, calls, start, device, bytes);
    text += '\n';
    ++works;
  }
  void memory(const char* verb, std::uint64_t address, std::int64_t bytes) {
    line(R"({{"r":"{}","address":{},"bytes":{},"at":{}}})", verb, address, bytes, now);
  }
  std::map<std::string, std::uint32_t> names_;
};

}  // namespace superneurons
