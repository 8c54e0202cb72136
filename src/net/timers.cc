#include "net/timers.h"

#include <chrono>

namespace varda::net {
namespace {

constexpr std::chrono::milliseconds kGrain{50};

}  // namespace

Timers::~Timers() {
  std::thread thread;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    thread.swap(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) thread.join();
}

void Timers::add(SteadyTime when, Timed& timed) {
  const auto ticks = (when.time_since_epoch() + kGrain - Duration(1)) / kGrain;
  bool earliest = false;
  {
    MutexLock lock(mutex_);
    const auto place = order_.emplace(SteadyTime(ticks * Duration(kGrain)), &timed);
    const auto [known, fresh] = places_.try_emplace(&timed, place);
    if (!fresh) {
      if (known->second != order_.end()) order_.erase(known->second);
      known->second = place;
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    earliest = place == order_.begin();
  }
  if (earliest) changed_.notify_all();
}

void Timers::add(Timed& timed) {
  MutexLock lock(mutex_);
  places_.try_emplace(&timed, order_.end());
}

void Timers::remove(Timed& timed) {
  MutexLock lock(mutex_);
  const auto found = places_.find(&timed);
  if (found == places_.end()) return;
  if (found->second != order_.end()) order_.erase(found->second);
  places_.erase(found);
}

void Timers::all() {
  MutexLock lock(mutex_);
  for (const auto& [timed, place] : places_) timed->due();
}

void Timers::run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (order_.empty()) {
      changed_.wait(mutex_);
      continue;
    }
    const SteadyTime next = order_.begin()->first;
    const SteadyTime now = std::chrono::steady_clock::now();
    if (now < next) {
      (void)changed_.wait_until(mutex_, next);
      continue;
    }
    while (!order_.empty() && order_.begin()->first <= now) {
      Timed* const timed = order_.begin()->second;
      order_.erase(order_.begin());
      places_[timed] = order_.end();
      timed->due();
    }
  }
}

}  // namespace varda::net
