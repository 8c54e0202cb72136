// Link: the agent's EdgeNode at the API server. Reads its spec, creates it if missing, writes its
// status.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "api/edgeai/edge_node.h"
#include "base/context.h"
#include "base/mutex.h"
#include "kube/client.h"
#include "runtime/informer.h"
#include "runtime/task.h"

namespace varda::agent {

/// Lifetime of the agent's watches, plus up to half of it at random, before the agent opens the
/// next one. The cloud considers an agent alive while a watch is open. A hung process keeps its
/// connection open, so only a missing reconnect reveals it.
inline constexpr std::chrono::seconds kWatchTimeout{10};

/// A merge patch for the agent's members of status; nothing if `live` (a whole EdgeNode) has them
/// already. Conditions and members of other writers stay. Pure.
std::optional<codec::Json> status_patch(const api::EdgeNodeStatus& wanted, const codec::Json& live);

/// Thread-safe.
class Link {
 public:
  struct Options {
    std::string node_name;
    std::chrono::seconds watch_timeout = kWatchTimeout;
    std::chrono::milliseconds backoff_first{200};
    std::chrono::milliseconds backoff_max{5000};
    const Clock* clock = nullptr;  // null: the system clock
    Rng* rng = nullptr;            // null: the system's
    metrics::Registry* metrics = nullptr;
  };
  /// `desired` gets every version of the EdgeNode, on the task that watches, and must be quick.
  /// `client` outlives the link.
  using WorkList = std::function<void(const api::EdgeNode&)>;
  Link(const kube::Client& client, Options options, WorkList desired);

  /// Sets the status to write whenever the server's differs; retried while the link is down.
  /// Nothing is written before the first call. `observed_uid` is the uid of the object that
  /// observedGeneration refers to, because generations of a recreated object start over.
  void report(api::EdgeNodeStatus status, std::string observed_uid);
  /// Two tasks: watching the object, and writing its status.
  std::vector<runtime::Task> tasks();

 private:
  void step(const Context& ctx);
  /// When step() has something to write. Nothing: before the first list, or until a change.
  std::optional<SteadyTime> due() const;
  struct Wanted {
    api::EdgeNodeStatus status;
    std::string observed_uid;
  };
  Status sync(const Context& ctx, const Wanted& wanted);
  void wake();

  const kube::Client& client_;
  const Options options_;
  const Clock& clock_;
  runtime::Informer informer_;
  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  std::optional<Wanted> wanted_ GUARDED_BY(mutex_);
  bool dirty_ GUARDED_BY(mutex_) = false;
  // State of step() and due().
  std::chrono::milliseconds backoff_;
  std::optional<SteadyTime> retry_ GUARDED_BY(mutex_);
  // Set after a write if the local copy lacks the object. Usually the watch brings it. If the
  // object was deleted before it was ever listed, no event comes, so step() checks again at this
  // time.
  std::optional<SteadyTime> look_again_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent
