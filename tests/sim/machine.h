// Machine: an edge node. Its disk and containers outlive its agent. The agent is real except for
// threads, archive contents and pod processes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/core/core.h"
#include "agent/datasets/manager.h"
#include "agent/models/manager.h"
#include "agent/pods/pods.h"
#include "agent/workers/manager.h"
#include "artifact/model_tree.h"
#include "artifact/store.h"
#include "dataset/testing/memory_tree.h"
#include "mutations.h"
#include "network.h"
#include "os/testing/memory_file_system.h"
#include "os/testing/memory_file_watch.h"
#include "scheduler.h"
#include "worker_program.h"

namespace varda::sim {

/// The archive server. Good archives have the digest of their URL.
struct Origin {
  std::set<std::string> broken;  // never available
  std::uint32_t failures = 0;    // downloads per thousand that fail now and may succeed later
  std::chrono::milliseconds slowest{2000};
  static codec::Sha256 digest(const std::string& url) { return codec::Sha256::of(url); }
};

/// A container of a pod. A model's container has a server. At the edge it follows the mounted model
/// directory; in the cloud it serves the version that its pod fetches.
struct Container {
  std::string pod_uid, ns, name, address;
  int port = 0;
  std::string model_key;                 // edge: NAMESPACE/NAME of a model, NAMESPACE/NAME.WORKER
                                         // of a job's; "": other pods
  std::string cloud_key;                 // cloud: NAMESPACE/NAME of the model; "": other pods
  std::string worker_key;                // edge: NAMESPACE/NAME of a worker; "": other pods
  std::string model_name;                // the model's name for clients
  std::string fetch_url, fetch_version;  // cloud
  bool fetch_failed = false;             // cloud: the archive is unavailable
  std::string serving;                   // the served version; "": not serving yet
  SteadyTime started;
  int restarts = 0;
  std::int64_t answered = 0;  // client requests since the last restart
  bool has_server() const { return !model_key.empty() || !cloud_key.empty(); }
};

class Machine {
 public:
  /// `layer` is edge or cloud.
  Machine(std::string name, std::string layer, int number, const Origin& origin,
          const Mutations& mutations, Network& network, Scheduler& scheduler, Rng& product_rng);
  ~Machine();

  const std::string& name() const { return name_; }
  const std::string& layer() const { return layer_; }
  const std::string& address() const { return address_; }

  bool agent_running() const { return life_ != nullptr; }
  void start_agent();
  /// Dies at once; its disk and containers stay.
  void stop_agent();
  /// Containers die, too. The agent must not be running.
  void lose_containers();
  /// One container dies, and its runner restarts it.
  void crash_container(std::uint64_t which);
  void set_link(bool up);
  bool link_up() const { return link_up_; }

  const std::map<std::string, std::unique_ptr<Container>>& containers() const {
    return containers_;
  }  // by pod uid
  /// Models that expose a version, with the content of that version's file; "" if the file is
  /// missing.
  const std::map<std::string, std::string>& exposed();
  /// Whether an archive with that content was ever downloaded completely.
  bool verified(const std::string& content) const { return verified_.contains(content); }
  /// Model key, URL and version of all servers that answered in this schedule, or served at its
  /// start. The URL is "" in the cloud layer, where clients reach a Service.
  const std::set<std::tuple<std::string, std::string, std::string>>& answered() const {
    return answered_;
  }
  /// Drops answers of servers that no longer run; statuses must not report them any more.
  void forget_old_answers();
  /// A client sends a request to the edge server of a model. False: no server runs.
  bool send_request(const std::string& model_key);
  /// A worker's program on this machine evaluates its model. False: no program runs.
  bool evaluate(const std::string& model_key, int accuracy);
  /// The assignment that the worker's program has read; null: not read yet, or no such program.
  codec::Json assignment(const std::string& worker_key) const;
  /// The node must expect exactly these workers.
  void expects_workers(const std::set<std::string>& keys);
  /// The results that programs reported here, by worker key and uid.
  const std::map<std::pair<std::string, std::string>, Reported>& reported() const {
    return reported_;
  }
  /// The keys of the workers with a token on disk.
  std::set<std::string> tokens();
  /// A file beside the versions of a model: "target", "joint.json". Nothing: no such file.
  std::optional<std::string> model_file(const std::string& model_key, const std::string& name);

  static constexpr const char* kDatasets = "/datasets";
  /// Users' files below kDatasets. Users call dataset_changed() after each change.
  dataset::testing::MemoryTree& datasets() { return datasets_; }
  void dataset_changed(const os::Path& path);

 private:
  friend class Runner;
  friend class Artifacts;
  friend class ServerClient;
  struct Life;
  void serve_step(Container& container);
  void fetch_step(Container& container);
  std::optional<std::string> first_line(const os::Path& path);
  std::map<std::string, std::string> read_exposed();
  void add_container(std::unique_ptr<Container> container);
  void remove_container(const std::string& uid);
  void start_program(const std::string& uid, const Container& container);

  const std::string name_, layer_;
  const int number_;
  const std::string address_;
  const Origin& origin_;
  const Mutations& mutations_;
  Network& network_;
  Scheduler& scheduler_;
  Rng& product_rng_;
  bool link_up_ = true;

  os::testing::MemoryFileSystem fs_;
  dataset::testing::MemoryTree datasets_;
  std::map<std::string, std::string>
      exposed_;  // as of call exposed_at_ of fs_: most steps touch no file
  std::uint64_t exposed_at_ = 0;
  std::unique_ptr<agent::core::StateStore> state_store_;
  std::map<codec::Sha256, std::uint64_t> artifacts_;
  std::set<std::string> verified_;
  std::map<std::string, std::unique_ptr<Container>> containers_;
  std::map<std::string, std::unique_ptr<Process>> servers_;  // a container's process, by pod uid
  std::map<std::string, std::unique_ptr<WorkerProgram>> programs_;  // of workers, by pod uid
  std::map<std::pair<std::string, std::string>, Reported> reported_;
  std::map<std::string, codec::Json> pods_;  // the runner's records, by uid
  std::set<std::tuple<std::string, std::string, std::string>> answered_;
  int addresses_ = 0;  // count of addresses given to pods
  std::unique_ptr<Life> life_;
};

}  // namespace varda::sim
