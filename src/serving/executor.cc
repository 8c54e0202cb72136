#include "serving/executor.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/caught.h"

namespace varda::serving {
namespace {

// Set on a job thread while ~Executor() runs there: the job held the last reference to the
// executor's owner.
thread_local bool* executor_destroyed = nullptr;

// An exception must end neither the server nor the count of running jobs.
void run_contained(Job& job) {
  contain("request ended with an exception", [&] { job.run(); });
}

}  // namespace

Executor::Executor(Options options) : options_(options) {
  threads_.reserve(options_.instances);
  for (unsigned i = 0; i < options_.instances; ++i) threads_.emplace_back([this] { work(); });
}

Executor::~Executor() {
  std::deque<Waiting> dropped;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(queue_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.get_id() != std::this_thread::get_id()) {
      thread.join();
      continue;
    }
    // A job of this executor held the last reference to the owner. The thread cannot join itself;
    // it ends when it returns from here.
    *executor_destroyed = true;
    thread.detach();
  }
}

Status Executor::submit(std::unique_ptr<Job>& job) {
  const std::size_t bytes = job->bytes();
  {
    MutexLock lock(mutex_);
    // A free instance beside a non-empty queue means that threads are about to take jobs: queued
    // jobs come first.
    const bool short_enough = average_ <= options_.inline_max && bytes <= options_.inline_bytes_max;
    if (!short_enough || running_ >= options_.instances || !queue_.empty()) {
      if (queue_.size() >= options_.queue_max ||
          (!queue_.empty() && queue_bytes_ + bytes > options_.queue_bytes_max)) {
        return Error(Code::kExhausted, "the queue is full: " + std::to_string(queue_.size()) +
                                           " requests of " + std::to_string(queue_bytes_) +
                                           " bytes are waiting");
      }
      queue_bytes_ += bytes;
      const std::uint64_t place = next_place_++;
      job->waits(place);
      queue_.push_back({place, std::move(job)});
      changed_.notify_one();
      return {};
    }
    ++running_;
  }
  const SteadyTime start = system_clock().now();
  run_contained(*job);
  const Duration duration = system_clock().now() - start;
  bool wake = false;
  {
    MutexLock lock(mutex_);
    finished(duration);
    wake = !queue_.empty();
  }
  if (wake) changed_.notify_one();
  job.reset();
  return {};
}

bool Executor::run_here(Job& job) {
  {
    MutexLock lock(mutex_);
    if (running_ >= options_.instances || !queue_.empty()) return false;
    ++running_;
  }
  run_contained(job);
  bool wake = false;
  {
    MutexLock lock(mutex_);
    --running_;
    wake = !queue_.empty();
  }
  if (wake) changed_.notify_one();
  return true;
}

std::unique_ptr<Job> Executor::withdraw(std::uint64_t place) {
  MutexLock lock(mutex_);
  const auto found =
      std::lower_bound(queue_.begin(), queue_.end(), place,
                       [](const Waiting& w, std::uint64_t p) { return w.place < p; });
  if (found == queue_.end() || found->place != place) return nullptr;
  std::unique_ptr<Job> job = std::move(found->job);
  queue_.erase(found);
  queue_bytes_ -= job->bytes();
  return job;
}

void Executor::expect(Duration duration) {
  MutexLock lock(mutex_);
  average_ = duration;
}

std::size_t Executor::waiting() const {
  MutexLock lock(mutex_);
  return queue_.size();
}

void Executor::finished(Duration duration) {
  --running_;
  // A moving average over about eight jobs; one outlier moves a model to the threads only for a
  // while.
  average_ += (duration - average_) / 8;
}

void Executor::work() {
  bool destroyed = false;
  executor_destroyed = &destroyed;
  for (;;) {
    std::unique_ptr<Job> job;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && (queue_.empty() || running_ >= options_.instances))
        changed_.wait(mutex_);
      if (stopping_) return;
      job = std::move(queue_.front().job);
      queue_.pop_front();
      queue_bytes_ -= job->bytes();
      ++running_;
    }
    const SteadyTime start = system_clock().now();
    run_contained(*job);
    const Duration duration = system_clock().now() - start;
    {
      MutexLock lock(mutex_);
      finished(duration);
    }
    // Destroyed last and without the lock: the job may hold the last reference to the executor's
    // owner.
    job.reset();
    if (destroyed) return;
  }
}

}  // namespace varda::serving
