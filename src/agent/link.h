// Link: the agent's EdgeNode at the API server. Reads its spec, creates it where it is missing, writes the status.
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
#include "runtime/strand.h"

namespace varda::agent {

/// How long a watch of the agent stays open, jittered upwards by half, before it asks for the next one. That an agent has a watch
/// open is how the cloud knows that it lives, and the connection of a process that hangs stays open: only not coming back tells.
inline constexpr std::chrono::seconds kWatchTimeout{10};

/// The members of status that are the agent's, as a merge patch; nothing if `live` (a whole EdgeNode) says them already. Conditions
/// and whatever else others write stay. Pure.
std::optional<codec::Json> status_patch(const api::EdgeNodeStatus& wanted, const codec::Json& live);

/// Thread-safe.
class Link {
 public:
  struct Options {
    std::string node_name;
    std::chrono::seconds watch_timeout = kWatchTimeout;
    std::chrono::milliseconds backoff_first{200};
    std::chrono::milliseconds backoff_max{5000};
    const Clock* clock = nullptr;  // null: the machine's
    Rng* rng = nullptr;            // null: the machine's
    metrics::Registry* metrics = nullptr;
  };
  /// `desired` gets every version of the EdgeNode, on a thread of run(); quick. `client` outlives the link.
  using Desired = std::function<void(const api::EdgeNode&)>;
  Link(const kube::Client& client, Options options, Desired desired);

  /// What status should say from now on. Written when it differs from what the server has; kept and retried while there is no
  /// link. Before the first call nothing is written. Its observedGeneration is that of the object with `observed_uid`: an object
  /// made anew under the name has generations of its own.
  void report(api::EdgeNodeStatus status, std::string observed_uid);
  /// Works until the context is done.
  void run(const Context& ctx);
  /// Following the object, and writing its status.
  std::vector<runtime::Strand> strands();

 private:
  void step(const Context& ctx);
  /// When step() has something to write. Nothing: not before the first list, and not before something changes.
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
  std::condition_variable_any woken_;
  std::optional<Wanted> wanted_ GUARDED_BY(mutex_);
  bool dirty_ GUARDED_BY(mutex_) = false;
  // Of step(), and for due().
  std::chrono::milliseconds backoff_;
  std::optional<SteadyTime> retry_ GUARDED_BY(mutex_);
  // The object was written and the copy does not hold it. The watch brings it, or a list shows that it went before it was ever
  // seen, and then nobody tells: so it is looked for again.
  std::optional<SteadyTime> look_again_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent
