// Core: an agent without threads, disk and processes. Agent runs it on threads; the simulator steps
// it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "agent/dataset_manager.h"
#include "agent/link.h"
#include "agent/model_manager.h"
#include "agent/node_registration.h"
#include "agent/pod_host.h"
#include "agent/replica_manager.h"
#include "agent/state_store.h"
#include "agent/worker_manager.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "node/pod_runner.h"
#include "runtime/event.h"
#include "runtime/informer.h"
#include "runtime/task.h"

namespace varda::agent {

/// The pods of a node: its registration, its assigned pods, and the runner's reports about them.
class Pods {
 public:
  Pods(const Options& options, const kube::Client& api, NodeFacts facts, const Clock& clock,
       Rng& rng);

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
  PodHost host_;
  NodeRegistration registration_;
  node::PodRunner* runner_ = nullptr;
  mutable Mutex mutex_;
  runtime::Wakeup wakeup_;
  bool changed_ GUARDED_BY(mutex_) = false;
  bool fed_ GUARDED_BY(mutex_) = false;
};

/// Root of the worker tokens: NAMESPACE/NAME/token.
inline os::Path worker_root(const os::Path& data_directory) { return data_directory / "workers"; }

class Core {
 public:
  /// All parts outlive the core.
  struct Parts {
    const Options& options;
    const kube::Client& api;
    net::HttpClient& http;
    os::FileSystem& fs;
    StateStore& state_store;
    artifact::Store& store;
    artifact::ModelTree& tree;
    const Clock& clock;
    Rng& rng;
    std::string address;
    os::FileWatch* watch = nullptr;           // null: the system's
    DatasetManager::OpenTree open_tree = {};  // empty: real files below options.dataset_roots
    ReplicaManager* replicas = nullptr;       // null: this node neither shares files nor has copies
    std::string peer_url = {};                // URL where other nodes fetch the shared files
    Peers* peers = nullptr;                   // null: archives are not fetched from other nodes
    replica::Archives* archives = nullptr;    // null: archives are not served to other nodes
    WorkerManager* workers = nullptr;         // null: this node expects no workers
  };
  /// `pods` null: this agent has no runner.
  Core(Parts parts, Pods* pods);

  /// Runs tasks() on threads until the context is done, then finishes all components.
  void run(const Context& ctx);
  /// Loads the persisted work list.
  std::vector<runtime::Task> tasks();

 private:
  /// The last status of one component, and the uid of the work list that it answers.
  struct Said {
    api::EdgeNodeStatus status;
    std::string uid;
  };
  /// Merges the last status of each component. Nothing is reported before every component has
  /// reported; until then the server keeps the previous status.
  void report();

  const Parts parts_;
  Pods* const pods_;
  Mutex mutex_;
  std::optional<Said> of_models_ GUARDED_BY(mutex_), of_datasets_ GUARDED_BY(mutex_),
      of_replicas_ GUARDED_BY(mutex_), of_workers_ GUARDED_BY(mutex_);
  const std::unique_ptr<os::FileWatch> watch_;  // used if Parts has none
  Link link_;
  ModelManager models_;
  DatasetManager datasets_;
};

}  // namespace varda::agent
