// Anteroom: requests that came before what they ask about was read from the API server.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "base/mutex.h"

namespace varda::gateway {

/// Who enters goes on once `ready` holds, after `patience`, or when it is closed: on the room's own thread, in order of arrival.
/// Thread-safe. Destroying it closes it.
class Anteroom {
 public:
  struct Options {
    std::function<bool()> ready;  // quick; once true it stays so
    std::chrono::milliseconds patience{0};
    std::size_t waiting_max = 20'000;
    std::size_t bytes_max = 16u << 20;  // of all who wait
  };
  using Go = std::function<void()>;

  explicit Anteroom(Options options);
  ~Anteroom();
  Anteroom(const Anteroom&) = delete;
  Anteroom& operator=(const Anteroom&) = delete;

  /// False: full, or closed; `go` was not taken. `bytes` is what it holds.
  [[nodiscard]] bool enter(std::size_t bytes, const Go& go) EXCLUDES(mutex_);
  /// `ready` may hold now.
  void look() EXCLUDES(mutex_);
  /// Everybody goes on, nobody enters any more. Idempotent.
  void close() EXCLUDES(mutex_);

 private:
  struct Guest {
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
  std::deque<Guest> guests_ GUARDED_BY(mutex_);
  Mutex joining_;
  std::thread thread_ GUARDED_BY(joining_);
};

}  // namespace varda::gateway
