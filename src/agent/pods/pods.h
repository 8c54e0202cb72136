// Pods: the pods of a node that runs them itself. Registers the Node, passes its assigned pods to
// the runner, and reports about them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "agent/pods/host.h"
#include "agent/pods/registration.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/mutex.h"
#include "base/rng.h"
#include "node/pod_runner.h"
#include "runtime/event.h"
#include "runtime/informer.h"
#include "runtime/task.h"

namespace varda::agent::pods {

/// Follows the API server's Pods, not the work list, so this is no NodeComponent.
class Pods {
 public:
  struct Options {
    NodeFacts facts;
    std::chrono::seconds watch_timeout{10};
    std::chrono::milliseconds backoff_max{5000};
    std::chrono::milliseconds node_period{10000};  // between checks that the Node exists
    metrics::Registry* metrics = nullptr;
  };
  /// All references outlive the object.
  Pods(Options options, const kube::Client& api, const Clock& clock, Rng& rng);

  /// The runner's host. Open the runner with it, then pass the runner to start().
  node::Host& host() { return host_; }
  void start(node::PodRunner& runner) { runner_ = &runner; }

  /// Without the runner's own work.
  std::vector<runtime::Task> tasks();
  /// Cancels the runner's calls to the API server. After the last step.
  void finish() { host_.cancel(); }

 private:
  /// Passes the pods to the runner, from complete lists only: the runner ends each pod that is
  /// missing.
  void feed();
  std::optional<SteadyTime> feed_due() const;

  const Clock& clock_;
  runtime::Informer informer_;
  runtime::ApiEventRecorder events_;
  Host host_;
  Registration registration_;
  node::PodRunner* runner_ = nullptr;
  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  bool changed_ GUARDED_BY(mutex_) = false;
  bool fed_ GUARDED_BY(mutex_) = false;
};

}  // namespace varda::agent::pods
