// The edge agent: one process on a node that does what its EdgeNode says, and works on while it is cut off.
//
//   agent::Options options{.node_name = "edge0", .data_directory = data, .runner = agent::Runner::kProcess};
//   TRY(auto agent, agent::Agent::open(std::move(options), *client, *download));
//   TRY_VOID(agent->run(ctx));
//
// Below the data directory: agent.db, artifacts/, datasets/, models/, pods/, workers/.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/peers.h"
#include "artifact/limits.h"
#include "base/context.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "kube/client.h"
#include "meta/node_address.h"
#include "net/http.h"
#include "node/containerd_driver.h"
#include "os/file_system.h"
#include "os/process.h"

namespace varda::agent {

enum class Runner { kNone, kProcess, kContainerd };
/// What becomes of the containers when run() returns.
enum class OnStop {
  kLeaveContainers,  // the next agent adopts them
  kEndContainers,    // ended, their records and volumes stay: the next agent starts them again
};

struct Options {
  std::string node_name;
  std::string layer = "edge";  // cloud, edge, device: a label of the Node it registers
  os::Path data_directory;     // absolute; made if missing
  Runner runner = Runner::kNone;
  OnStop on_stop = OnStop::kLeaveContainers;
  std::chrono::milliseconds stop_grace{5000};             // from SIGTERM to SIGKILL, with kEndContainers
  std::map<std::string, std::string> images;              // of the process driver: name -> command line
  std::string containerd_socket;                          // of the containerd driver; "": where containerd has it by default
  node::PodNetwork pod_network = node::PodNetwork::kCni;  // of the containerd driver
  std::vector<os::Path> hidden_from_pods;  // of the process driver, besides the data directory: credentials, another's data
  os::Path programs;                       // where varda-serve and the others stand; empty: beside the running program
  std::map<std::string, std::string> container_environment;
  std::string node_address;  // empty: drawn at the first start and kept
  /// kAnotherMachine: a loopback address is not reported. It would lead readers on other machines to themselves.
  meta::Reporter reporter = meta::Reporter::kThisMachine;
  std::vector<os::Path> file_roots;                                   // file URLs are read below these only
  std::vector<os::Path> dataset_roots;                                // datasets are read below these only
  std::chrono::milliseconds dataset_recount{std::chrono::hours(24)};  // every byte of a dataset is read again after so long
  std::string peer_listen;  // other nodes get files that are shared with them here; "": they do not
  std::string peer_url;     // where they reach that; "": https:// and what was bound
  /// The node's certificate, for other nodes; empty: it has none, and neither shares files nor copies them.
  std::function<std::optional<PeerCredentials>()> peer_credentials;
  os::Path worker_socket;     // workers of jobs on this node ask here; "": nowhere
  std::string worker_listen;  // and here, as 127.0.0.1:10446; "": nowhere. What was bound is in DATA/worker/worker.url
  std::uint64_t artifact_capacity_bytes = 0;  // 0: the disk's
  artifact::Limits artifact_limits;
  std::uint64_t replica_bytes_max = std::uint64_t{256} << 30;  // of one share that this node copies
  net::HttpClient* downloads = nullptr;  // fetches archives, as through a proxy; null: as all else. Outlives the agent
  /// A client like `downloads` that trusts these certificates too; empty: Secrets with a ca.crt are refused.
  std::function<std::unique_ptr<net::HttpClient>(const std::string& ca_pem)> trusting_client;
  std::size_t install_threads = 2;
  std::chrono::milliseconds retry_first{1000};  // of failed downloads, doubling up to five minutes
  std::chrono::milliseconds poll_busy{300};     // of model servers that do not serve what they should yet
  std::chrono::milliseconds poll_steady{2000};
  std::chrono::seconds watch_timeout{10};            // of watches, and half of it more by chance: how soon a dead link is seen
  std::chrono::milliseconds link_backoff_max{5000};  // between attempts to reach the API server
  std::chrono::milliseconds progress_period{10000};  // between figures of downloads, and before the first of one
  std::chrono::milliseconds marks_period{2000};      // between looks at what `varda artifacts` asks for
  std::chrono::milliseconds node_period{10000};      // between looks whether the Node is still there (with a runner)
  metrics::Registry* metrics =
      nullptr;  // varda_agent_installs_total, varda_agent_artifact_bytes, varda_agent_models; outlives the agent
};

/// Owns its data directory: one agent at a time.
class Agent {
 public:
  /// `api` speaks to the API server as this node, `http` fetches archives and asks model servers; both outlive the agent.
  /// kUnavailable: another agent has the data directory. kInvalid: a bad option, named.
  static Result<std::unique_ptr<Agent>> open(Options options, const kube::Client& api, net::HttpClient& http,
                                             os::FileSystem& fs = os::real_file_system(), Rng& rng = system_rng(),
                                             os::ProcessRunner& processes = os::real_processes());
  virtual ~Agent() = default;

  virtual const std::string& node_address() const = 0;
  /// Works until the context is done, with or without an API server. Once. Success after a stop request.
  virtual Status run(const Context& ctx) = 0;
};

}  // namespace varda::agent
