#include "cluster/sessions.h"

namespace varda::cluster {

void NodeSessions::opened(const apiserver::Identity& identity) { set(identity, true); }
void NodeSessions::closed(const apiserver::Identity& identity) { set(identity, false); }

void NodeSessions::set(const apiserver::Identity& identity, bool connected) {
  const auto node = identity.node();
  if (!node) return;
  MutexLock lock(mutex_);
  nodes_[*node] = {.connected = connected, .since = clock_.now()};
  // Under the lock, so that the listener is never called after on_change(nullptr). The listener
  // only enqueues a key.
  if (reported_) reported_(*node);
}

NodeSessions::State NodeSessions::of(const std::string& node) const {
  MutexLock lock(mutex_);
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? State{.connected = false, .since = started_} : found->second;
}

void NodeSessions::on_change(std::function<void(const std::string& node)> callback) {
  MutexLock lock(mutex_);
  reported_ = std::move(callback);
}

}  // namespace varda::cluster
