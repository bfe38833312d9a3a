#include "replay/host_streams.h"

#include <algorithm>
#include <utility>

namespace superneurons {

HostStreams::HostStreams() {
  try {
    for (Worker& each : workers_) each.thread = std::thread([&each] { work(each); });
  } catch (...) {
    close();
    throw;
  }
}

HostStreams::~HostStreams() { close(); }

void HostStreams::close() {
  for (Worker& each : workers_) {
    const std::lock_guard lock(each.mutex);
    each.closing = true;
    each.changed.notify_all();
  }
  for (Worker& each : workers_)
    if (each.thread.joinable()) each.thread.join();
}

void HostStreams::work(Worker& worker) {
  std::unique_lock lock(worker.mutex);
  while (true) {
    worker.changed.wait(lock, [&] { return !worker.queue.empty() || worker.closing; });
    if (worker.queue.empty()) return;
    Task task = std::move(worker.queue.front());
    worker.queue.pop_front();
    worker.busy = true;
    lock.unlock();
    task();
    lock.lock();
    worker.busy = false;
    if (worker.queue.empty()) worker.changed.notify_all();
  }
}

void HostStreams::post(Stream stream, Task task) {
  Worker& target = worker(stream);
  const std::lock_guard lock(target.mutex);
  target.queue.push_back(std::move(task));
  target.changed.notify_all();
}

void HostStreams::record(Stream stream, std::uint32_t event) {
  if (event >= issued_.size()) {
    issued_.resize(event + 1);
    const std::lock_guard lock(events_mutex_);
    reached_.resize(event + 1);
  }
  const std::uint64_t number = ++issued_[event];
  post(stream, [this, event, number] {
    const std::lock_guard lock(events_mutex_);
    reached_[event] = std::max(reached_[event], number);
    recorded_.notify_all();
  });
}

void HostStreams::wait(Stream stream, std::uint32_t event) {
  if (event >= issued_.size() || issued_[event] == 0) return;
  post(stream, [this, event, number = issued_[event]] {
    std::unique_lock lock(events_mutex_);
    recorded_.wait(lock, [&] { return reached_[event] >= number; });
  });
}

void HostStreams::sync() {
  for (Worker& each : workers_) {
    std::unique_lock lock(each.mutex);
    each.changed.wait(lock, [&] { return each.queue.empty() && !each.busy; });
  }
}

}  // namespace superneurons
