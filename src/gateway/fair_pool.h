// FairPool: runs blocking work of many keys on few threads. A busy key does not delay the others.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/mutex.h"

namespace varda::gateway {

/// Each key has its own queue. The threads take from the queues in turn, at most
/// `in_flight_per_key_max` of one key at a time. Thread-safe. The destructor waits for running work
/// and drops waiting work.
class FairPool {
 public:
  struct Options {
    std::size_t threads = 16;
    std::size_t in_flight_per_key_max = 4;
    std::size_t waiting_per_key_max = 32;
    std::size_t waiting_max = 20'000;
    std::size_t bytes_max = 64u << 20;  // of all waiting work
  };
  using Work = std::function<void()>;

  explicit FairPool(Options options);
  ~FairPool();
  FairPool(const FairPool&) = delete;
  FairPool& operator=(const FairPool&) = delete;

  /// False: full; the work was dropped. `bytes`: the memory that `work` holds.
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
    bool in_turn = false;  // turn_ has the key
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
