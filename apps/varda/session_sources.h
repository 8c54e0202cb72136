// Merges the sessions of two servers, the API server and the gateway, into one NodeSessions. A node
// counts as connected while either server has a watch of the node.
#pragma once

#include <map>
#include <string>

#include "apiserver/identity.h"
#include "base/mutex.h"
#include "cluster/sessions.h"
#include "gateway/sessions.h"

namespace varda::app {

/// Thread-safe. `sessions` outlives it.
class SessionSources final : public apiserver::SessionObserver, public gateway::Sessions {
 public:
  explicit SessionSources(cluster::NodeSessions& sessions) : sessions_(sessions) {}

  void opened(const apiserver::Identity& identity) override { change(identity, 1); }
  void closed(const apiserver::Identity& identity) override { change(identity, -1); }
  void opened(const std::string& node) override { change(identity_of(node), 1); }
  void closed(const std::string& node) override { change(identity_of(node), -1); }

 private:
  static apiserver::Identity identity_of(const std::string& node) {
    return {"system:node:" + node, {"system:nodes"}};
  }
  void change(const apiserver::Identity& identity, int by) {
    MutexLock lock(mutex_);  // held during notifications, to keep them in order
    int& open = open_[identity.name];
    open += by;
    if (by > 0 && open == 1) sessions_.opened(identity);
    if (by < 0 && open == 0) {
      open_.erase(identity.name);
      sessions_.closed(identity);
    }
  }

  cluster::NodeSessions& sessions_;
  Mutex mutex_;
  std::map<std::string, int> open_ GUARDED_BY(mutex_);
};

}  // namespace varda::app
