#include "gateway/sessions.h"

#include <chrono>

namespace varda::gateway {

OpenWatches::OpenWatches(Options options) : options_(options), thread_([this] { run(); }) {}

OpenWatches::~OpenWatches() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::unique_ptr<OpenWatches::Handle> OpenWatches::open(const std::string& node) {
  MutexLock lock(mutex_);
  if (total_ >= options_.watches_max) return nullptr;
  const auto [at, fresh] = nodes_.try_emplace(node);
  if (at->second.open >= options_.watches_per_node_max) return nullptr;
  ++at->second.open;
  ++total_;
  // Under the lock, so that notifications stay in order.
  if (fresh && options_.sessions) options_.sessions->opened(node);
  return std::make_unique<Handle>(*this, node);
}

void OpenWatches::close(const std::string& node) {
  bool wake = false;
  {
    MutexLock lock(mutex_);
    --total_;
    Node& of_node = nodes_[node];
    if (--of_node.open > 0) return;
    of_node.ended = ++ends_;
    wake = ended_.empty();
    ended_.push_back({std::chrono::steady_clock::now() + options_.linger, node, of_node.ended});
  }
  if (wake) changed_.notify_all();
}

std::size_t OpenWatches::watches() const {
  MutexLock lock(mutex_);
  return total_;
}

std::size_t OpenWatches::nodes() const {
  MutexLock lock(mutex_);
  return nodes_.size();
}

void OpenWatches::run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (ended_.empty()) {
      changed_.wait(mutex_);
      continue;
    }
    if (const SteadyTime next = ended_.front().report_at; std::chrono::steady_clock::now() < next) {
      (void)changed_.wait_until(mutex_, next);
      continue;
    }
    const End end = std::move(ended_.front());
    ended_.pop_front();
    const auto found = nodes_.find(end.node);
    if (found == nodes_.end() || found->second.open > 0 || found->second.ended != end.number)
      continue;
    nodes_.erase(found);
    if (options_.sessions) options_.sessions->closed(end.node);
  }
}

}  // namespace varda::gateway
