// Tracks which agents have an open watch at the API server. This sign of life needs no writes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "apiserver/identity.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace varda::cluster {

/// Session observer of apiserver::Server; input of add_all(). Thread-safe.
class NodeSessions final : public apiserver::SessionObserver {
 public:
  explicit NodeSessions(const Clock& clock = system_clock())
      : clock_(clock), started_(clock.now()) {}

  void opened(const apiserver::Identity& identity) override;
  void closed(const apiserver::Identity& identity) override;

  struct State {
    bool connected = false;
    SteadyTime since;  // of that state; for an unknown agent, when this object was created
  };
  State of(const std::string& node) const EXCLUDES(mutex_);

  /// Called with the node's name after each change, on the API server's threads. Set once, before
  /// run(); nullptr removes the callback.
  void on_change(std::function<void(const std::string& node)> reported) EXCLUDES(mutex_);

 private:
  void set(const apiserver::Identity& identity, bool connected);

  const Clock& clock_;
  const SteadyTime started_;
  mutable Mutex mutex_;
  std::map<std::string, State> nodes_ GUARDED_BY(mutex_);
  std::function<void(const std::string&)> reported_ GUARDED_BY(mutex_);
};

}  // namespace varda::cluster
