// StartupQueue: holds requests until the gateway has read the objects that they ask for.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace varda::gateway {

/// Releases a request when `ready` holds, after `patience`, or at close(). The room's own thread
/// calls `go`, in order of arrival. Thread-safe. The destructor calls close().
class StartupQueue {
 public:
  struct Options {
    std::function<bool()> ready;  // quick; once true it stays so
    std::chrono::milliseconds patience{0};
    std::size_t waiting_max = 20'000;
    std::size_t bytes_max = 16u << 20;  // of all waiting requests
  };
  using Go = std::function<void()>;

  explicit StartupQueue(Options options);
  ~StartupQueue();
  StartupQueue(const StartupQueue&) = delete;
  StartupQueue& operator=(const StartupQueue&) = delete;

  /// False: full or closed; `go` is not called. `bytes`: the memory that `go` holds.
  [[nodiscard]] bool enter(std::size_t bytes, const Go& go) EXCLUDES(mutex_);
  /// Checks `ready` again. Call it when `ready` may have become true.
  void look() EXCLUDES(mutex_);
  /// Releases all requests, refuses new ones, and waits for the thread. Idempotent.
  void close() EXCLUDES(mutex_);

 private:
  struct Waiting {
    SteadyTime leaves;
    std::size_t bytes = 0;
    Go go;
  };
  void run() EXCLUDES(mutex_);

  const Options options_;
  Mutex mutex_;
  CondVar changed_;
  bool closed_ GUARDED_BY(mutex_) = false;
  std::size_t bytes_ GUARDED_BY(mutex_) = 0;
  std::deque<Waiting> waiting_ GUARDED_BY(mutex_);
  Mutex joining_;
  std::thread thread_ GUARDED_BY(joining_);
};

}  // namespace varda::gateway
