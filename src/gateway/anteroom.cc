#include "gateway/anteroom.h"

#include <utility>

namespace varda::gateway {

Anteroom::Anteroom(Options options) : options_(std::move(options)), thread_([this] { run(); }) {}

Anteroom::~Anteroom() { close(); }

bool Anteroom::enter(std::size_t bytes, const Go& go) {
  {
    MutexLock lock(mutex_);
    if (closed_ || guests_.size() >= options_.waiting_max || bytes_ + bytes > options_.bytes_max)
      return false;
    guests_.push_back({std::chrono::steady_clock::now() + options_.patience, bytes, go});
    bytes_ += bytes;
  }
  changed_.notify_all();  // `ready` may hold already
  return true;
}

void Anteroom::look() {
  // The lock prevents a lost wake-up: the thread could check `ready` just before, and wait just
  // after.
  { MutexLock lock(mutex_); }
  changed_.notify_all();
}

void Anteroom::close() {
  {
    MutexLock lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  MutexLock lock(joining_);
  if (thread_.joinable()) thread_.join();
}

void Anteroom::run() {
  bool ended = false;
  while (!ended) {
    std::deque<Guest> leaving;
    {
      MutexLock lock(mutex_);
      while (leaving.empty() && !ended) {
        ended = closed_;
        const SteadyTime now = std::chrono::steady_clock::now();
        const bool all = ended || (!guests_.empty() && options_.ready());
        while (!guests_.empty() && (all || guests_.front().leaves <= now)) {
          bytes_ -= guests_.front().bytes;
          leaving.push_back(std::move(guests_.front()));
          guests_.pop_front();
        }
        if (!leaving.empty() || ended) break;
        if (guests_.empty()) {
          changed_.wait(mutex_);
        } else {
          (void)changed_.wait_until(mutex_, guests_.front().leaves);
        }
      }
    }
    for (const Guest& guest : leaving) guest.go();
  }
}

}  // namespace varda::gateway
