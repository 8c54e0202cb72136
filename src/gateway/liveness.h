// Liveness: writes to EdgeNodes whether the node is connected: the condition Connected and
// status.lastSeen. For a gateway with its own process; beside our own API server a controller
// writes them (room cluster).
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "gateway/sessions.h"
#include "kube/client.h"
#include "runtime/informer.h"

namespace varda::gateway {

/// The merge patch that sets the condition Connected and lastSeen. Nothing: the EdgeNode has them
/// already. `seen`: end of the last connection, for lastSeen. Pure.
std::optional<codec::Json> connected_patch(const codec::Json& edge_node, bool connected,
                                           WallTime seen, WallTime now);

/// Writes transitions only. Thread-safe.
///
/// Several gateways may serve one API server. A gateway with a watch of a node writes
/// Connected=True whenever the object lacks it. A gateway writes a disconnection only once: after
/// the node's last watch there ended, and after the gateway's start. So gateways stop contradicting
/// each other. A node with a watch at any gateway becomes Connected, a node without any watch
/// disconnected. Gateways do not share sessions. So a node may briefly show as disconnected while
/// the node changes gateways, or after a gateway's start.
class Liveness final : public Sessions {
 public:
  struct Options {
    std::size_t threads = 4;
    /// Nodes reconnect one by one after the start. Until this time has passed, nodes that this
    /// process has not seen are not reported as disconnected.
    std::chrono::milliseconds start_grace{30'000};
    std::chrono::milliseconds retry{1000};
    const Clock* clock = nullptr;  // for written times; null: the machine's
  };
  /// `client` outlives it.
  Liveness(const kube::Client& client, Options options);
  ~Liveness() override;
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  void opened(const std::string& node) override;
  void closed(const std::string& node) override;
  /// Takes changes of EdgeNodes; for Gateway::Options.edge_node_changed.
  void changed(const runtime::Change& change) EXCLUDES(mutex_);
  /// True: no step is scheduled or running; for tests.
  bool idle() const EXCLUDES(mutex_);

 private:
  struct Node {
    bool seen = false;  // this process had a watch of the node: `connected` is the truth
    bool connected = false;
    SteadyTime since;                      // last change of `connected`
    bool disconnection_unreported = true;  // this process has not reported the disconnection yet
    bool reported_connected = false;       // the object was Connected since the watch opened
    runtime::StoredPtr object;             // newest known; null: no object
    std::optional<SteadyTime> due;
    bool working = false;
    bool again = false;  // a change came during the step
  };
  void set(const std::string& node, bool connected) EXCLUDES(mutex_);
  void schedule(const std::string& name, Node& node, SteadyTime when) REQUIRES(mutex_);
  void run(const std::stop_token& stop) EXCLUDES(mutex_);
  struct Outcome {
    std::optional<SteadyTime> again = {};  // time of the next step; nothing: none is needed
    bool is_current = false;               // the object has the right condition
    runtime::StoredPtr written = nullptr;  // the object after the write; null: nothing was written
  };
  /// Compares a snapshot of the node with its object, and writes the difference.
  Outcome step(const Context& ctx, const std::string& name, const Node& node) EXCLUDES(mutex_);
  void warn_of_another(const std::string& node) EXCLUDES(mutex_);

  const kube::Client& client_;
  const Options options_;
  const Clock& clock_;
  const SteadyTime started_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::unordered_map<std::string, Node> nodes_ GUARDED_BY(mutex_);
  std::set<std::pair<SteadyTime, std::string>> due_ GUARDED_BY(mutex_);
  std::optional<SteadyTime> warned_ GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;
};

}  // namespace varda::gateway
