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

/// Writes transitions only. Thread-safe.
///
/// Of several gateways before one API server, whoever has a watch of a node says so whenever the object does not; that a node is
/// cut off each says but once: when the node's last watch here ended, and after its own start. So they do not go on contradicting
/// each other, a node that somebody has is connected in the end, and one that left its last gateway is not. What none can know is
/// whom the others have: a node that goes from one to another, or a gateway's start, may be told as a cut of a moment.
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
  /// Nothing is left to do now; for tests.
  bool idle() const EXCLUDES(mutex_);

 private:
  struct Node {
    bool seen = false;  // by this process, so that what follows is the truth
    bool connected = false;
    SteadyTime since;             // of that
    bool call_it_cut = true;      // that nobody is there was not said since it became so
    bool said_connected = false;  // the object said so since the watch opened
    runtime::StoredPtr object;    // the newest known; null: there is none
    std::optional<SteadyTime> due;
    bool working = false;
    bool again = false;  // something happened meanwhile
  };
  void set(const std::string& node, bool connected) EXCLUDES(mutex_);
  void schedule(const std::string& name, Node& node, SteadyTime when) REQUIRES(mutex_);
  void run(const std::stop_token& stop) EXCLUDES(mutex_);
  struct Outcome {
    std::optional<SteadyTime> again = {};  // when to look again, if at all
    bool said = false;                     // the object says what is so
    runtime::StoredPtr written = nullptr;  // the object as it is after that; null: nothing was written
  };
  /// Looks at a node as it was a moment ago.
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
