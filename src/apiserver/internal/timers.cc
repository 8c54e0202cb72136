#include "apiserver/internal/timers.h"

namespace varda::apiserver {

Timers::~Timers() {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
  }
}

void Timers::at(SteadyTime when, const std::shared_ptr<WakeCell>& cell) {
  std::lock_guard lock(mutex_);
  due_.emplace(when, cell);
  if (!thread_.joinable())
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  changed_.notify_one();
}

void Timers::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (due_.empty()) {
      changed_.wait(lock, stop, [&] { return !due_.empty(); });
      continue;
    }
    const SteadyTime next = due_.begin()->first;
    if (next > system_clock().now()) {
      changed_.wait_until(lock, stop, next,
                          [&] { return !due_.empty() && due_.begin()->first < next; });
      continue;
    }
    const std::weak_ptr<WakeCell> cell = due_.begin()->second;
    due_.erase(due_.begin());
    lock.unlock();
    if (const auto alive = cell.lock()) alive->call();
    lock.lock();
  }
}

}  // namespace varda::apiserver
