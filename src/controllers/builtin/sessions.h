// Which nodes' agents have a watch open at the API server right now: the only sign of life there is, and it costs no writes.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "apiserver/identity.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace varda::controllers {

/// Given to apiserver::Server as its session observer and to add_builtin(). Thread-safe.
class NodeSessions final : public apiserver::SessionObserver {
 public:
  explicit NodeSessions(const Clock& clock = system_clock()) : clock_(clock), started_(clock.now()) {}

  void opened(const apiserver::Identity& who) override;
  void closed(const apiserver::Identity& who) override;

  struct State {
    bool connected = false;
    SteadyTime since;  // of that; an agent never seen is disconnected since this object was made
  };
  State of(const std::string& node) const EXCLUDES(mutex_);

  /// Called with the node's name after each change, on the API server's threads. Set once, before run(); nullptr takes it away.
  void on_change(std::function<void(const std::string& node)> told) EXCLUDES(mutex_);

 private:
  void set(const apiserver::Identity& who, bool connected);

  const Clock& clock_;
  const SteadyTime started_;
  mutable Mutex mutex_;
  std::map<std::string, State> nodes_ GUARDED_BY(mutex_);
  std::function<void(const std::string&)> told_ GUARDED_BY(mutex_);
};

}  // namespace varda::controllers
