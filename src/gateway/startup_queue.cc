#include "gateway/startup_queue.h"

#include <utility>

namespace varda::gateway {

StartupQueue::StartupQueue(Options options)
    : options_(std::move(options)), thread_([this] { run(); }) {}

StartupQueue::~StartupQueue() { close(); }

bool StartupQueue::enter(std::size_t bytes, const Go& go) {
  {
    MutexLock lock(mutex_);
    if (closed_ || waiting_.size() >= options_.waiting_max || bytes_ + bytes > options_.bytes_max)
      return false;
    waiting_.push_back({std::chrono::steady_clock::now() + options_.patience, bytes, go});
    bytes_ += bytes;
  }
  changed_.notify_all();  // `ready` may hold already
  return true;
}

void StartupQueue::look() {
  // The lock prevents a lost wake-up: the thread could check `ready` just before, and wait just
  // after.
  { MutexLock lock(mutex_); }
  changed_.notify_all();
}

void StartupQueue::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  MutexLock lock(joining_);
  if (thread_.joinable()) thread_.join();
}

void StartupQueue::run() {
  bool ended = false;
  while (!ended) {
    std::deque<Waiting> leaving;
    {
      MutexLock lock(mutex_);
      while (leaving.empty() && !ended) {
        ended = closed_;
        const SteadyTime now = std::chrono::steady_clock::now();
        const bool all = ended || (!waiting_.empty() && options_.ready());
        while (!waiting_.empty() && (all || waiting_.front().leaves <= now)) {
          bytes_ -= waiting_.front().bytes;
          leaving.push_back(std::move(waiting_.front()));
          waiting_.pop_front();
        }
        if (!leaving.empty() || ended) break;
        if (waiting_.empty()) {
          changed_.wait(mutex_);
        } else {
          (void)changed_.wait_until(mutex_, waiting_.front().leaves);
        }
      }
    }
    for (const Waiting& waiting : leaving) waiting.go();
  }
}

}  // namespace varda::gateway
