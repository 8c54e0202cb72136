// Threads for blocking work, such as upstream calls: started on demand, ended when idle.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/result.h"
#include "serving/executor.h"

namespace varda::serving::joint {

/// Thread-safe. A job starts at once or is refused: there is no queue.
class Threads {
 public:
  struct Options {
    std::size_t max = 1024;
    std::chrono::milliseconds idle{30000};  // a thread ends after this long without work
  };
  explicit Threads(Options options);
  /// Calls stop().
  ~Threads();
  Threads(const Threads&) = delete;

  /// Runs the job on a free or new thread. kExhausted: `max` jobs are running, or the system gives
  /// no more threads. kUnavailable: stop() was called. On an error the job is unchanged and stays
  /// with the caller.
  Status submit(std::unique_ptr<Job>& job);
  /// Refuses new jobs and waits for running ones; the caller has to cancel long jobs.
  void stop();

  /// Number of threads now.
  std::size_t count() const;

 private:
  void work(std::size_t id);

  const Options options_;
  mutable Mutex mutex_;
  CondVar job_available_;
  std::deque<std::unique_ptr<Job>> jobs_ GUARDED_BY(mutex_);
  std::size_t busy_ GUARDED_BY(mutex_) = 0;  // jobs accepted and not done; never more than threads
  std::size_t next_id_ GUARDED_BY(mutex_) = 0;
  std::map<std::size_t, std::thread> threads_ GUARDED_BY(mutex_);
  std::vector<std::thread> ended_ GUARDED_BY(mutex_);  // to be joined
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace varda::serving::joint
