// Threads for work that blocks, such as calls of other servers: started when they are needed, ended when they no longer are.
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

/// Thread-safe. A job begins at once or is refused: nothing waits here.
class Threads {
 public:
  struct Options {
    std::size_t max = 1024;
    std::chrono::milliseconds idle{30000};  // after that much time without work a thread ends
  };
  explicit Threads(Options options);
  /// As stop().
  ~Threads();
  Threads(const Threads&) = delete;

  /// Runs the job on a thread of its own. kExhausted: `max` are at work, or the machine gives no more threads. kUnavailable: after
  /// stop(). The job is then not touched and still the caller's.
  Status submit(std::unique_ptr<Job>& job);
  /// Takes no more and waits for those at work; whoever can shorten that has to.
  void stop();

  /// Threads there are now.
  std::size_t count() const;

 private:
  void work(std::size_t id);

  const Options options_;
  mutable Mutex mutex_;
  CondVar given_;
  std::deque<std::unique_ptr<Job>> jobs_ GUARDED_BY(mutex_);
  std::size_t busy_ GUARDED_BY(mutex_) = 0;  // jobs taken and not done; never more than there are threads
  std::size_t next_id_ GUARDED_BY(mutex_) = 0;
  std::map<std::size_t, std::thread> threads_ GUARDED_BY(mutex_);
  std::vector<std::thread> ended_ GUARDED_BY(mutex_);  // to be joined
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace varda::serving::joint
