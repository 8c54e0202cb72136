// Machine: an edge node. Its disk and its containers outlive its agent; the agent is the real one but for its threads, the
// archives' bytes and the processes of pods.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/internal/core.h"
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

/// What the world outside does with archives. By URL: good ones have the digest of their URL.
struct Origin {
  std::set<std::string> broken;  // never to be had
  std::uint32_t failures = 0;    // downloads out of a thousand that fail and may succeed later
  std::chrono::milliseconds slowest{2000};
  static codec::Sha256 digest(const std::string& url) { return codec::Sha256::of(url); }
};

/// A container of a pod. One of a model has a server: at the edge it follows the model directory that its pod mounts, in the cloud
/// it serves the version that its pod fetches.
struct Container {
  std::string pod_uid, ns, name, address;
  int port = 0;
  std::string model_key;                 // edge: NAMESPACE/NAME of a model, NAMESPACE/NAME.WORKER of a job's; "" of other pods
  std::string cloud_key;                 // cloud: NAMESPACE/NAME of the model; "" of other pods
  std::string worker_key;                // edge: NAMESPACE/NAME of a worker with a program of the user; "" for other pods
  std::string model_name;                // what clients call it
  std::string fetch_url, fetch_version;  // cloud
  bool fetch_failed = false;             // cloud: the archive cannot be had
  std::string serving;                   // the version it answers with; "" none yet
  SteadyTime started;
  int restarts = 0;
  std::int64_t answered = 0;  // requests of clients since the last restart
  bool has_server() const { return !model_key.empty() || !cloud_key.empty(); }
};

class Machine {
 public:
  /// `layer` is edge or cloud.
  Machine(std::string name, std::string layer, int number, const Origin& origin, const Mutations& mutations, Network& network,
          Scheduler& scheduler, Rng& product_rng);
  ~Machine();

  const std::string& name() const { return name_; }
  const std::string& layer() const { return layer_; }
  const std::string& address() const { return address_; }

  bool agent_running() const { return life_ != nullptr; }
  void start_agent();
  /// Dies at once; its disk and its containers stay.
  void stop_agent();
  /// Containers die too. The agent is not running.
  void lose_containers();
  /// One container dies and its runner starts it again.
  void crash_container(std::uint64_t which);
  void set_link(bool up);
  bool link_up() const { return link_up_; }

  const std::map<std::string, std::unique_ptr<Container>>& containers() const { return containers_; }  // by pod uid
  /// Models whose directory shows a version, with the content of that version's file; "" of one that has none.
  const std::map<std::string, std::string>& exposed();
  /// Whether an archive with that content was had whole, ever.
  bool verified(const std::string& content) const { return verified_.contains(content); }
  /// Model key, URL and version that answered in this schedule, or when it began. The URL is "" in the cloud layer, where clients
  /// reach a Service.
  const std::set<std::tuple<std::string, std::string, std::string>>& answered() const { return answered_; }
  /// What answered once and is no more is nothing that a status may still tell.
  void forget_old_answers();
  /// A client sends a request to the server of a model at the edge. False: none serves.
  bool ask(const std::string& model_key);
  /// A worker's program in a container there finds how good its model is. False: none runs.
  bool evaluate(const std::string& model_key, int accuracy);
  /// The assignment that the program of a worker has read; null: it has read none, or there is no such program.
  codec::Json assignment(const std::string& worker_key) const;
  /// The node shall expect these workers, by key, and no others.
  void expects_workers(const std::set<std::string>& keys);
  /// The results that programs reported here, by worker key and uid.
  const std::map<std::pair<std::string, std::string>, Told>& told() const { return told_; }
  /// The keys of the workers with a token on the disk.
  std::set<std::string> tokens();
  /// A file beside the versions of a model: "target", "cascade.json". Nothing: there is none.
  std::optional<std::string> model_file(const std::string& model_key, const std::string& name);

  static constexpr const char* kDatasets = "/datasets";
  /// Files that users have below kDatasets. Users call changed() after each change.
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
  std::map<std::string, std::string> exposed_;  // as of the file system's call number exposed_at_: most steps touch no file
  std::uint64_t exposed_at_ = 0;
  std::unique_ptr<agent::Journal> journal_;
  std::map<codec::Sha256, std::uint64_t> artifacts_;
  std::set<std::string> verified_;
  std::map<std::string, std::unique_ptr<Container>> containers_;
  std::map<std::string, std::unique_ptr<Process>> servers_;         // a container's process, by pod uid
  std::map<std::string, std::unique_ptr<WorkerProgram>> programs_;  // of workers, by pod uid
  std::map<std::pair<std::string, std::string>, Told> told_;
  std::map<std::string, codec::Json> pods_;  // the runner's records, by uid
  std::set<std::tuple<std::string, std::string, std::string>> answered_;
  int addresses_ = 0;  // that pods with a network of their own were given
  std::unique_ptr<Life> life_;
};

}  // namespace varda::sim
