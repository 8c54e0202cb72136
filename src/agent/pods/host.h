// Host: connects the pod runner to the API server. Statuses and deletions go out; ConfigMaps and
// Secrets come in.
//
// Statuses are state: only the last one of each pod is kept and sent, once the link is up.
#pragma once

#include <chrono>
#include <map>
#include <set>

#include "base/context.h"
#include "base/mutex.h"
#include "kube/client.h"
#include "node/pod_runner.h"
#include "runtime/event.h"
#include "runtime/informer.h"
#include "runtime/task.h"

namespace varda::agent::pods {

/// Merge patch that sets the status of `live` to `status`, with the uid as precondition. Nothing if
/// it is set already. Pure.
std::optional<codec::Json> pod_status_patch(const codec::Json& live, const codec::Json& status);

class Host final : public node::Host {
 public:
  struct Options {
    std::chrono::milliseconds backoff_first{200};
    std::chrono::milliseconds backoff_max{5000};
    std::chrono::milliseconds config_timeout{5000};
    std::size_t pods_max = 1000;   // limit of waiting statuses; excess ones are dropped
    const Clock* clock = nullptr;  // null: the system clock
  };
  /// `pods` is the informer of this node's pods. All references outlive the host.
  Host(const kube::Client& client, const runtime::Informer& pods, runtime::EventRecorder& events,
       Options options);

  void status_changed(const node::PodName& pod, const node::Json& status) override;
  void finished(const node::PodName& pod) override;
  void event(const node::PodName& pod, const std::string& type, const std::string& reason,
             const std::string& message) override;
  Result<node::Json> config_map(const std::string& ns, const std::string& name) override;
  Result<node::Json> secret(const std::string& ns, const std::string& name) override;

  /// The server's pods changed: retry what waits.
  void wake();
  runtime::Task task();
  /// Ends running and later calls of config_map() and secret() with an error.
  void cancel() { stop_.request_stop(); }
  /// Sends everything that waits. One thread.
  void step(const Context& ctx);
  /// When step() has something to send. Nothing: before the first list of pods, or until a change.
  std::optional<SteadyTime> due() const;
  /// Whether nothing waits to be sent.
  bool idle() const;

 private:
  /// False: keep it and retry.
  bool send_status(const Context& ctx, const node::PodName& pod, const node::Json& status);
  bool send_delete(const Context& ctx, const node::PodName& pod);

  const kube::Client& client_;
  const runtime::Informer& pods_;
  runtime::EventRecorder& events_;
  const Options options_;
  const Clock& clock_;
  std::stop_source stop_;  // cancels calls of the runner's thread
  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  bool dirty_ GUARDED_BY(mutex_) = false;
  std::map<node::PodName, node::Json> statuses_ GUARDED_BY(mutex_);
  std::set<node::PodName> finished_ GUARDED_BY(mutex_);
  // State of step() and due().
  std::chrono::milliseconds backoff_;
  std::optional<SteadyTime> retry_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent::pods
