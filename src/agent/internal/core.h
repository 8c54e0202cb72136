// Core: an agent without its threads, its disk and its processes. Agent runs it on threads over the machine; the simulator steps
// it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "agent/dataset_keeper.h"
#include "agent/journal.h"
#include "agent/link.h"
#include "agent/model_keeper.h"
#include "agent/node_registration.h"
#include "agent/pod_host.h"
#include "agent/replica_keeper.h"
#include "agent/worker_keeper.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "node/pod_runner.h"
#include "runtime/event.h"
#include "runtime/informer.h"
#include "runtime/strand.h"

namespace varda::agent {

/// The pods of a node: its registration, the pods it shall run, what the runner says of them.
class Pods {
 public:
  Pods(const Options& options, const kube::Client& api, NodeFacts facts, const Clock& clock, Rng& rng);

  /// What the runner needs. It is opened with that, and then given to start().
  node::Host& host() { return host_; }
  void start(node::PodRunner& runner) { runner_ = &runner; }

  /// Without the runner's own thread.
  void run(const Context& ctx);
  std::vector<runtime::Strand> strands();

 private:
  /// Hands the pods to the runner. Only a complete list is a wish: a pod that is missing from it is ended.
  void feed();
  std::optional<SteadyTime> feed_due() const;
  void feed_loop(const Context& ctx);

  const Clock& clock_;
  runtime::Informer informer_;
  runtime::ApiEventRecorder events_;
  PodHost host_;
  NodeRegistration registration_;
  node::PodRunner* runner_ = nullptr;
  mutable Mutex mutex_;
  std::condition_variable_any woken_;
  bool changed_ GUARDED_BY(mutex_) = false;
  bool fed_ GUARDED_BY(mutex_) = false;
};

/// Where the tokens of workers are, NAMESPACE/NAME/token.
inline os::Path worker_root(const os::Path& data_directory) { return data_directory / "workers"; }

class Core {
 public:
  /// All of it outlives the core.
  struct Parts {
    const Options& options;
    const kube::Client& api;
    net::HttpClient& http;
    os::FileSystem& fs;
    Journal& journal;
    artifact::Store& store;
    artifact::ModelTree& tree;
    const Clock& clock;
    Rng& rng;
    std::string address;
    os::FileWatch* watch = nullptr;          // null: the machine's
    DatasetKeeper::OpenTree open_tree = {};  // empty: the machine's files below options.dataset_roots
    ReplicaKeeper* replicas = nullptr;       // null: this node neither shares files nor has copies
    std::string peer_url = {};               // where others ask for what it shares
    Peers* peers = nullptr;                  // null: archives are not had from other nodes
    replica::Archives* archives = nullptr;   // null: nor given to them
    WorkerKeeper* workers = nullptr;         // null: this node expects no workers of jobs
  };
  /// `pods` null: this agent has no runner.
  Core(Parts parts, Pods* pods);

  void run(const Context& ctx);
  /// Takes up what was desired last. The same work as run(), for a driver of its own; the runner is not among it.
  std::vector<runtime::Strand> strands();

 private:
  /// What one of the keepers says, and which work list it answers.
  struct Said {
    api::EdgeNodeStatus status;
    std::string uid;
  };
  /// Puts together what the keepers said last. Nothing is told before each has said something: what the server knows from an
  /// earlier life stays until then.
  void report();

  const Parts parts_;
  Pods* const pods_;
  Mutex mutex_;
  std::optional<Said> of_models_ GUARDED_BY(mutex_), of_datasets_ GUARDED_BY(mutex_), of_replicas_ GUARDED_BY(mutex_),
      of_workers_ GUARDED_BY(mutex_);
  const std::unique_ptr<os::FileWatch> watch_;  // where none is given
  Link link_;
  ModelKeeper models_;
  DatasetKeeper datasets_;
};

}  // namespace varda::agent
