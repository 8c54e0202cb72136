// FairPool: blocking work for many on few threads, so that nobody who asks for much keeps the others waiting.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"

namespace varda::gateway {

/// Each key has a queue of its own; the threads take from them in turn, and never more than `in_flight_per_key_max` of one at a
/// time. Thread-safe. Destroying it waits for what runs and drops what waits.
class FairPool {
 public:
  struct Options {
    std::size_t threads = 16;
    std::size_t in_flight_per_key_max = 4;
    std::size_t waiting_per_key_max = 32;
    std::size_t waiting_max = 20'000;
    std::size_t bytes_max = 64u << 20;  // of all that waits
  };
  using Work = std::function<void()>;

  explicit FairPool(Options options);
  ~FairPool();
  FairPool(const FairPool&) = delete;
  FairPool& operator=(const FairPool&) = delete;

  /// False: full, and the work was dropped. `bytes` is what it holds.
  [[nodiscard]] bool submit(const std::string& key, std::size_t bytes, Work work) EXCLUDES(mutex_);
  std::size_t waiting() const EXCLUDES(mutex_);

 private:
  struct Item {
    std::size_t bytes = 0;
    Work work;
  };
  struct Queue {
    std::deque<Item> items;
    std::size_t in_flight = 0;
    bool in_turn = false;  // stands in turn_
  };
  void run() EXCLUDES(mutex_);
  void line_up(const std::string& key, Queue& queue) REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::size_t waiting_ GUARDED_BY(mutex_) = 0, bytes_ GUARDED_BY(mutex_) = 0;
  std::unordered_map<std::string, Queue> queues_ GUARDED_BY(mutex_);
  std::deque<std::string> turn_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace varda::gateway
