#include "tracer/activity_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <unordered_map>

#include "tracer/activity_writer.h"

namespace superneurons {
namespace {

constexpr std::size_t kBlock = 1U << 20;  // characters gathered before they are written

/// Appends to a file by fwrite; after the first failure does nothing more.
class Output {
 public:
  explicit Output(const std::string& path) : file_(std::fopen(path.c_str(), "w")) {}
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;
  ~Output() { close(); }

  bool open() const { return file_ != nullptr; }
  std::string& text() { return text_; }
  void flush_if(std::size_t more_than) {
    if (text_.size() <= more_than) return;
    good_ = good_ && std::fwrite(text_.data(), 1, text_.size(), file_) == text_.size();
    text_.clear();
  }
  /// Whether all reached the file.
  bool close() {
    if (!file_) return good_;
    good_ = good_ && std::ferror(file_) == 0;
    good_ = (std::fclose(file_) == 0) && good_;
    file_ = nullptr;
    return good_;
  }

 private:
  std::FILE* file_;
  std::string text_;
  bool good_ = true;
};

bool write_lines(const ActivityLog& log, const std::string& path) {
  std::unordered_map<std::uint32_t, std::uint64_t> tag_of;
  for (const TagActivity& tag : log.tags) tag_of[tag.correlation] = tag.tag;
  Output output(path);
  if (!output.open()) return false;
  for (const DeviceActivity& activity : log.device) {
    const auto tag = tag_of.find(activity.correlation);
    auto& text = output.text();
    fmt::format_to(std::back_inserter(text), "{{\"tag\":{},\"name\":",
                   tag == tag_of.end() ? -1 : static_cast<std::int64_t>(tag->second));
    append_quoted(text, log.names[activity.name]);
    fmt::format_to(std::back_inserter(text),
                   ",\"correlation\":{},\"stream\":{},\"start\":{},\"end\":{},\"kernel\":{}}}\n",
                   activity.correlation, activity.stream, activity.start.count, activity.end.count,
                   activity.kernel);
    output.flush_if(kBlock);
  }
  fmt::format_to(std::back_inserter(output.text()),
                 "{{\"r\":\"end\",\"activities\":{},\"dropped\":{}}}\n", log.device.size(),
                 log.dropped);
  output.flush_if(0);
  return output.close();
}

/// Removes a file when it goes, unless told to keep it.
struct Temporary {
  std::string path;
  bool keep = false;
  ~Temporary() {
    if (!keep) std::remove(path.c_str());
  }
};

}  // namespace

bool write_activity_log(ActivityLog log, const std::string& path) {
  std::stable_sort(log.device.begin(), log.device.end(),
                   [](const auto& a, const auto& b) { return a.start < b.start; });
  Temporary temporary{path + ".tmp"};
  if (!write_lines(log, temporary.path)) return false;
  temporary.keep = std::rename(temporary.path.c_str(), path.c_str()) == 0;
  return temporary.keep;
}

}  // namespace superneurons
