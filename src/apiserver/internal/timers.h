// Timers: run wake-ups at given times, for ends and bookmarks of watches.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "base/clock.h"

namespace varda::apiserver {

/// A wake-up function that can be revoked: after clear() returned it is never called.
class WakeCell {
 public:
  void set(std::function<void()> wake) {
    std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void clear() { set(nullptr); }
  void call() {
    std::lock_guard lock(
        mutex_);  // wake-ups are cheap and call nothing back, so the lock may be held
    if (wake_) wake_();
  }

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
};

/// One thread, started with the first timer. Thread-safe.
class Timers {
 public:
  Timers() = default;
  ~Timers();
  /// Wakes `cell` at `when`, if it still exists.
  void at(SteadyTime when, const std::shared_ptr<WakeCell>& cell);

 private:
  void run(const std::stop_token& stop);
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::multimap<SteadyTime, std::weak_ptr<WakeCell>> due_;
  std::jthread thread_;
};

}  // namespace varda::apiserver
