#include "gateway/fair_pool.h"

#include <exception>
#include <utility>

#include "base/log.h"

namespace varda::gateway {

FairPool::FairPool(Options options) : options_(options) {
  for (std::size_t i = 0; i < options_.threads; ++i) threads_.emplace_back([this] { run(); });
}

FairPool::~FairPool() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool FairPool::submit(const std::string& key, std::size_t bytes, Work work) {
  {
    MutexLock lock(mutex_);
    if (stopping_ || waiting_ >= options_.waiting_max || bytes_ + bytes > options_.bytes_max)
      return false;
    Queue& queue = queues_[key];
    if (queue.items.size() >= options_.waiting_per_key_max) return false;
    queue.items.push_back({bytes, std::move(work)});
    ++waiting_;
    bytes_ += bytes;
    line_up(key, queue);
  }
  changed_.notify_one();
  return true;
}

std::size_t FairPool::waiting() const {
  MutexLock lock(mutex_);
  return waiting_;
}

void FairPool::line_up(const std::string& key, Queue& queue) {
  if (queue.in_turn || queue.items.empty() || queue.in_flight >= options_.in_flight_per_key_max)
    return;
  queue.in_turn = true;
  turn_.push_back(key);
}

void FairPool::run() {
  while (true) {
    std::string key;
    Item item;
    {
      MutexLock lock(mutex_);
      while (turn_.empty() && !stopping_) changed_.wait(mutex_);
      if (stopping_) return;
      key = std::move(turn_.front());
      turn_.pop_front();
      Queue& queue = queues_[key];
      queue.in_turn = false;
      item = std::move(queue.items.front());
      queue.items.pop_front();
      ++queue.in_flight;
      --waiting_;
      bytes_ -= item.bytes;
      line_up(key, queue);
    }
    try {
      item.work();
    } catch (const std::exception& e) {
      log::error("queued request threw", {{"client", key}, {"what", e.what()}});
    }
    item.work = nullptr;  // frees what the work holds before its slot
    bool more = false;
    {
      MutexLock lock(mutex_);
      const auto found = queues_.find(key);
      --found->second.in_flight;
      line_up(key, found->second);
      more = found->second.in_turn;
      if (found->second.items.empty() && found->second.in_flight == 0) queues_.erase(found);
    }
    if (more) changed_.notify_one();
  }
}

}  // namespace varda::gateway
