// Link: the agent's EdgeNode at the API server. Reads its spec, creates it if missing (without
// Options::synced), writes its status.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "agent/core/work_list.h"
#include "api/edgeai/edge_node.h"
#include "base/context.h"
#include "base/mutex.h"
#include "kube/client.h"
#include "runtime/informer.h"
#include "runtime/task.h"

namespace varda::agent::core {

/// Lifetime of the agent's watches, plus up to half of it at random, before the agent opens the
/// next one. The cloud considers an agent alive while a watch is open. A hung process keeps its
/// connection open, so only a missing reconnect reveals it.
inline constexpr std::chrono::seconds kWatchTimeout{10};

/// A merge patch for the agent's members of status; nothing if `live` (a whole EdgeNode) has them
/// already. The agent owns each member that EdgeNodeStatus describes, except conditions and
/// lastSeen. Members of other writers stay. Pure.
std::optional<codec::Json> status_patch(const api::EdgeNodeStatus& wanted, const codec::Json& live);

/// Thread-safe.
///
/// The first change of the status is written at once. Changes that follow within
/// api::write_pause() are written together.
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
    /// Set: another program makes the object. Called after each comparison of the status with the
    /// server's, on the task "report". `live` null: the server has no such object.
    std::function<void(const api::EdgeNode* live, const api::EdgeNodeStatus& written)> synced = {};
  };
  /// The status to write, without observedGeneration, and the work list that it answers.
  struct Report {
    api::EdgeNodeStatus status;
    ListId observed;
  };
  /// `received` gets every version of the EdgeNode, on the task that watches, and must be quick.
  /// `report` is called before each write, with the server's status. `client` outlives the link.
  Link(const kube::Client& client, Options options,
       std::function<void(const api::EdgeNode&)> received,
       std::function<Report(const api::EdgeNodeStatus& live)> report);

  /// The report has changed: it is written if the server's status differs, and retried while the
  /// link is down. Nothing is written, or created, before the first call.
  void report_changed();
  /// Two tasks: watching the object, and writing its status.
  std::vector<runtime::Task> tasks();

 private:
  void step(const Context& ctx);
  /// When step() has something to write. Absent: before the first list, or until a change.
  std::optional<SteadyTime> due() const;
  /// The number of items in the status that was written. 0: nothing to write.
  Result<std::size_t> sync(const Context& ctx);
  void wake();

  const kube::Client& client_;
  const Options options_;
  const Clock& clock_;
  const std::function<Report(const api::EdgeNodeStatus&)> report_;
  runtime::Informer informer_;
  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  bool reporting_ GUARDED_BY(mutex_) = false;  // report_changed() was called
  bool dirty_ GUARDED_BY(mutex_) = false;
  // State of step() and due().
  std::chrono::milliseconds backoff_;
  std::optional<SteadyTime> retry_ GUARDED_BY(mutex_);
  SteadyTime next_write_ GUARDED_BY(mutex_) = SteadyTime::min();  // earlier changes wait
  // Set after a write if the local copy lacks the object. Usually the watch brings it. If the
  // object was deleted before it was ever listed, no event comes, so step() checks again at this
  // time.
  std::optional<SteadyTime> recheck_at_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent::core
