// Executor: runs the jobs of one loaded model, with a limit and a queue.
//
// At most `instances` jobs run at a time. A job runs at once on the caller's thread if an instance
// is free and recent jobs were short: a hand-over would cost more than the run. All other jobs wait
// in a bounded queue for the instance threads.
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
  /// Bytes held while the job is queued.
  virtual std::size_t bytes() const = 0;
  /// Called on the thread of submit() if the job has to wait, before another thread can see the
  /// job. `place` is the argument for Executor::withdraw(). Must not call the executor.
  virtual void waits(std::uint64_t /*place*/) {}
};

/// Thread-safe. Jobs must not outlive what they refer to. The destructor waits for running jobs and
/// drops queued ones without an answer. The owner makes sure that the queue is empty.
class Executor {
 public:
  struct Options {
    unsigned instances = 1;
    std::size_t queue_max = 256;
    std::size_t queue_bytes_max = std::size_t{64} << 20;  // an empty queue takes a job of any size
    std::chrono::microseconds inline_max{1000};  // average limit for jobs on the caller's thread
    std::size_t inline_bytes_max = std::size_t{256} << 10;  // size limit for such jobs
  };
  explicit Executor(Options options);
  ~Executor();

  /// Runs the job now or later. kExhausted: the queue is full; the job is unchanged and stays with
  /// the caller.
  Status submit(std::unique_ptr<Job>& job);
  /// Runs the job on the calling thread, however long it takes, if an instance is free. False: the
  /// job did not run. The duration does not count as one of a usual job.
  bool run_here(Job& job);
  /// Removes a queued job and frees its place. Null: the job runs, or has run.
  std::unique_ptr<Job> withdraw(std::uint64_t place);

  /// Sets the expected duration of a job before the first one has run.
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
  std::deque<Waiting> queue_ GUARDED_BY(mutex_);  // by place
  std::uint64_t next_place_ GUARDED_BY(mutex_) = 1;
  std::size_t queue_bytes_ GUARDED_BY(mutex_) = 0;
  unsigned running_ GUARDED_BY(mutex_) = 0;
  Duration average_ GUARDED_BY(mutex_){};
  bool stopping_ GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace varda::serving
