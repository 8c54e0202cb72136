// Executor: who runs what when, for one loaded model.
//
// At most `instances` jobs run at a time. A job that is short (as the ones before it were) and finds an instance free runs at once
// on the caller's thread: handing it over would cost more than running it. All others wait in a bounded queue for the instance
// threads.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"

namespace varda::serving {

class Job {
 public:
  virtual ~Job() = default;
  /// Called once, on any thread.
  virtual void run() = 0;
  /// What it holds while it waits.
  virtual std::size_t bytes() const = 0;
  /// Told on the thread of submit(), before anybody else has the job, if it has to wait: its place, for Executor::withdraw(). Must
  /// not call the executor.
  virtual void waits(std::uint64_t /*place*/) {}
};

/// Thread-safe. Jobs must not outlive what they refer to; destroying the executor waits for the running ones and drops those that
/// wait, so its owner sees to it that there are none.
class Executor {
 public:
  struct Options {
    unsigned instances = 1;
    std::size_t queue_max = 256;
    std::size_t queue_bytes_max = std::size_t{64} << 20;    // one job may always wait, however large
    std::chrono::microseconds inline_max{1000};             // jobs that last longer on average are not run on the caller's thread
    std::size_t inline_bytes_max = std::size_t{256} << 10;  // nor are larger ones
  };
  explicit Executor(Options options);
  ~Executor();

  /// Runs the job now or later. kExhausted: the queue is full; the job is not touched and still the caller's.
  Status submit(std::unique_ptr<Job>& job);
  /// Takes back a job that still waits, so that others have its place. Null: it runs, or has run.
  std::unique_ptr<Job> withdraw(std::uint64_t place);

  /// Tells how long a job lasts, before there was any.
  void expect(Duration duration);

  std::size_t waiting() const;

 private:
  struct Waiting {
    std::uint64_t place = 0;
    std::unique_ptr<Job> job;
  };
  void work();
  void finished(Duration duration) REQUIRES(mutex_);

  const Options options_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Waiting> queue_ GUARDED_BY(mutex_);  // in order of places
  std::uint64_t next_place_ GUARDED_BY(mutex_) = 1;
  std::size_t queue_bytes_ GUARDED_BY(mutex_) = 0;
  unsigned running_ GUARDED_BY(mutex_) = 0;
  Duration average_ GUARDED_BY(mutex_){};
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace varda::serving
