// A thread that calls a function every second, so that a program which ends hard (kill -9, _exit,
// abort) has lost little.
#pragma once

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <thread>

namespace superneurons {

class Flusher {
 public:
  /// The thread takes no signals: the program's handlers run where they did before.
  explicit Flusher(std::function<void()> flush) : flush_(std::move(flush)) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread_ = std::thread([this] { run(); });
    } catch (...) {  // no thread: the program is traced all the same
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Flusher() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, std::chrono::seconds(1), [this] { return stop_; })) flush_();
  }
  std::function<void()> flush_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace superneurons
