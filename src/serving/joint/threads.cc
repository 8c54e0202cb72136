#include "serving/joint/threads.h"

#include <system_error>
#include <utility>

#include "base/caught.h"

namespace varda::serving::joint {

Threads::Threads(Options options) : options_(options) {}

Threads::~Threads() { stop(); }

Status Threads::submit(std::unique_ptr<Job>& job) {
  std::vector<std::thread> ended;
  {
    MutexLock lock(mutex_);
    if (stopping_) return Error(Code::kUnavailable, "the server is shutting down");
    if (busy_ == threads_.size()) {
      if (busy_ >= options_.max)
        return Error(Code::kExhausted,
                     "all of " + std::to_string(options_.max) + " threads are busy");
      const std::size_t id = next_id_++;
      try {
        threads_.emplace(id, std::thread([this, id] { work(id); }));  // waits for the lock
      } catch (const std::system_error& e) {
        return Error(Code::kExhausted, std::string("no thread: ") + e.what());
      }
    }
    ++busy_;
    jobs_.push_back(std::move(job));
    ended.swap(ended_);
  }
  job_available_.notify_one();
  for (std::thread& thread : ended) thread.join();
  return {};
}

void Threads::work(std::size_t id) {
  mutex_.lock();
  for (bool timely = true; !jobs_.empty() || (!stopping_ && timely);) {
    if (jobs_.empty()) {
      const SteadyTime until = system_clock().now() + options_.idle;
      while (jobs_.empty() && !stopping_ && timely)
        timely = job_available_.wait_until(mutex_, until);
      continue;
    }
    std::unique_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    mutex_.unlock();
    contain("request over tiers ended with an exception", [&] { job->run(); });
    job.reset();
    mutex_.lock();
    --busy_;
    timely = true;
  }
  if (const auto self = threads_.find(id); self != threads_.end()) {  // else stop() joins it
    ended_.push_back(std::move(self->second));
    threads_.erase(self);
  }
  mutex_.unlock();
}

void Threads::stop() {
  std::map<std::size_t, std::thread> threads;
  std::vector<std::thread> ended;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    threads.swap(threads_);
    ended.swap(ended_);
  }
  job_available_.notify_all();
  for (auto& [id, thread] : threads) thread.join();
  for (std::thread& thread : ended) thread.join();
}

std::size_t Threads::count() const {
  MutexLock lock(mutex_);
  return threads_.size();
}

}  // namespace varda::serving::joint
