// Who is connected, as the cluster reads it: the condition Connected of EdgeNodes, and since when one was not seen. For a gateway
// that is a process of its own; beside an API server of ours a controller writes it (controllers/builtin).
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

/// The merge patch by which the EdgeNode says that; nothing if it says so already. `seen`: since when it is as it is. Pure.
std::optional<codec::Json> connected_patch(const codec::Json& edge_node, bool connected, WallTime seen, WallTime now);

/// Writes transitions only. Thread-safe. One gateway at a time may do it: of two, each would call the other's nodes cut off.
class Liveness final : public Sessions {
 public:
  struct Options {
    std::size_t threads = 4;
    /// After the start nodes come back one by one; until then nobody is called cut off who was not seen by this process.
    std::chrono::milliseconds start_grace{30'000};
    std::chrono::milliseconds retry{1000};
    const Clock* clock = nullptr;  // of what is written; null: the machine's
  };
  /// `client` outlives it.
  Liveness(const kube::Client& client, Options options);
  ~Liveness() override;
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  void opened(const std::string& node) override;
  void closed(const std::string& node) override;
  /// EdgeNodes as they change: Gateway::Options.edge_node_changed.
  void changed(const runtime::Change& change) EXCLUDES(mutex_);

 private:
  struct Node {
    bool seen = false;  // by this process, so that what follows is the truth
    bool connected = false;
    SteadyTime since;           // of that
    runtime::StoredPtr object;  // null: there is none
    std::optional<SteadyTime> due;
    bool working = false;
    bool again = false;  // something happened meanwhile
  };
  void set(const std::string& node, bool connected) EXCLUDES(mutex_);
  void schedule(const std::string& name, Node& node, SteadyTime when) REQUIRES(mutex_);
  void run(const std::stop_token& stop) EXCLUDES(mutex_);
  /// Looks at a node as it was a moment ago; when to look again, if at all.
  std::optional<SteadyTime> step(const Context& ctx, const std::string& name, const Node& node) const;

  const kube::Client& client_;
  const Options options_;
  const Clock& clock_;
  const SteadyTime started_;
  Mutex mutex_;
  CondVar changed_;
  std::unordered_map<std::string, Node> nodes_ GUARDED_BY(mutex_);
  std::set<std::pair<SteadyTime, std::string>> due_ GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;
};

}  // namespace varda::gateway
