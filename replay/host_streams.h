// Three worker threads as FIFO streams, with events as on CUDA: a wait captures the latest record
// that was issued before it, so an event can be recorded anew in every training step.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "simulator/program.h"

namespace superneurons {

class HostStreams {
 public:
  using Task = std::function<void()>;

  /// Starts the threads; throws std::system_error where there are none to be had.
  HostStreams();
  /// Runs what is queued, then ends the threads.
  ~HostStreams();
  HostStreams(const HostStreams&) = delete;
  HostStreams& operator=(const HostStreams&) = delete;

  // Only one thread may issue. None of these block.
  void post(Stream stream, Task task);
  void record(Stream stream, std::uint32_t event);
  /// Holds `stream` until the latest record of `event` issued so far is reached; nothing if none.
  void wait(Stream stream, std::uint32_t event);

  /// Blocks until all streams are idle. Everything they wrote is visible afterwards.
  void sync();

 private:
  struct Worker {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Task> queue;
    bool busy = false;
    bool closing = false;
    std::thread thread;
  };
  static void work(Worker& worker);
  void close();
  Worker& worker(Stream stream) { return workers_[static_cast<std::size_t>(stream)]; }

  std::array<Worker, kStreamNames.size()> workers_;
  std::vector<std::uint64_t> issued_;  // per event: records issued; of the issuing thread
  std::mutex events_mutex_;
  std::condition_variable recorded_;
  std::vector<std::uint64_t> reached_;  // per event: the latest record that its stream got to
};

}  // namespace superneurons
