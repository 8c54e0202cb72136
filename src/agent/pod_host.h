// PodHost: what a pod runner needs from the API server: statuses and deletions go out, ConfigMaps and Secrets come in.
//
// Statuses are state: of each pod the last one counts, kept while there is no link and sent when there is.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <set>

#include "base/context.h"
#include "base/mutex.h"
#include "kube/client.h"
#include "node/pod_runner.h"
#include "runtime/event.h"
#include "runtime/informer.h"

namespace varda::agent {

/// Merge patch that makes `live`'s status say `status`, with the uid as precondition; nothing if it does already. Pure.
std::optional<codec::Json> pod_status_patch(const codec::Json& live, const codec::Json& status);

class PodHost final : public node::Host {
 public:
  struct Options {
    std::chrono::milliseconds backoff_first{200};
    std::chrono::milliseconds backoff_max{5000};
    std::chrono::milliseconds config_timeout{5000};
    std::size_t pods_max = 1000;   // statuses and deletions waiting; beyond, the new one is dropped (the runner holds far fewer)
    const Clock* clock = nullptr;  // null: the machine's
  };
  /// `pods` is the informer of this node's pods. All outlive the host.
  PodHost(const kube::Client& client, const runtime::Informer& pods, runtime::EventRecorder& events, Options options);

  void status_changed(const node::PodName& pod, const node::Json& status) override;
  void finished(const node::PodName& pod) override;
  void event(const node::PodName& pod, const std::string& type, const std::string& reason, const std::string& message) override;
  Result<node::Json> config_map(const std::string& ns, const std::string& name) override;
  Result<node::Json> secret(const std::string& ns, const std::string& name) override;

  /// Something about the pods changed at the server: what waits may be possible now.
  void wake();
  /// Sends until the context is done.
  void run(const Context& ctx);
  /// Sends what waits; what run() does between two waits. One thread.
  void step(const Context& ctx);
  /// When step() has something to send. Nothing: not before the first list of pods, and not before something changes.
  std::optional<SteadyTime> due() const;
  /// Nothing waits to be sent.
  bool idle() const;

 private:
  /// False: not yet; keep it.
  bool send_status(const Context& ctx, const node::PodName& pod, const node::Json& status);
  bool send_delete(const Context& ctx, const node::PodName& pod);

  const kube::Client& client_;
  const runtime::Informer& pods_;
  runtime::EventRecorder& events_;
  const Options options_;
  const Clock& clock_;
  std::stop_source stop_;  // ends calls of the runner's thread when run() ends
  mutable Mutex mutex_;
  std::condition_variable_any woken_;
  bool dirty_ GUARDED_BY(mutex_) = false;
  std::map<node::PodName, node::Json> statuses_ GUARDED_BY(mutex_);
  std::set<node::PodName> finished_ GUARDED_BY(mutex_);
  // Of step(), and for due().
  std::chrono::milliseconds backoff_;
  std::optional<SteadyTime> retry_ GUARDED_BY(mutex_);
};

}  // namespace varda::agent
