// Writes what a tracer sees to a file as it comes: the activity log of a CUDA program
// (traces/FORMAT.md, "Activity logs"), which is whole up to the last buffer whenever the program
// ends, however it does.
#pragma once

#include <memory>
#include <string>

#include "tracer/activity_sink.h"

namespace superneurons {

/// What stands in the header.
struct ActivityHeader {
  std::int64_t process = 0;
  std::string command;
  std::int64_t base = 0;  // ns on the tracer's clock: times in the log count from here
};

class ActivityWriter final : public ActivitySink {
 public:
  /// The file comes with the first device work or allocation, so that a process that does nothing
  /// on a device leaves none.
  ActivityWriter(std::string path, const ActivityHeader& header);
  ~ActivityWriter() override;
  ActivityWriter(const ActivityWriter&) = delete;
  ActivityWriter& operator=(const ActivityWriter&) = delete;

  void work(const SeenWork& work, std::string_view name) noexcept override;
  void tag(const TagActivity& tag) noexcept override;
  void call(const SeenCall& call, std::string_view name) noexcept override;
  void memory(const SeenMemory& memory) noexcept override;
  void mark(const SeenMark& mark, std::string_view name) noexcept override;
  void dropped(std::int64_t records) noexcept override;
  void flush() noexcept override;

  /// Writes the end record. False if not all could be written; a log that no device work came to
  /// is not written, which is true.
  bool finish() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Names in logs: no quotes, control characters or broken UTF-8.
void append_quoted(std::string& out, std::string_view text);

}  // namespace superneurons
