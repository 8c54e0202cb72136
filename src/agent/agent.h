// The edge agent: one process on a node that carries out the node's EdgeNode. The agent keeps
// working while the API server is unreachable.
//
//   agent::Options options{
//       .node_name = "edge0", .data_directory = data, .runner = agent::Runner::kProcess};
//   TRY(auto agent, agent::Agent::open(std::move(options), *client, *download));
//   TRY_VOID(agent->run(ctx));
//
// Below the data directory: agent.db, artifacts/, datasets/, models/, pods/, samples/, uploads/,
// workers/.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/core/address.h"
#include "agent/identity/peer_credentials.h"
#include "artifact/limits.h"
#include "base/context.h"
#include "base/metrics.h"
#include "base/rng.h"
#include "kube/client.h"
#include "meta/node_address.h"
#include "net/http.h"
#include "net/tunnel.h"
#include "node/containerd_driver.h"
#include "os/file_system.h"
#include "os/process.h"

namespace varda::agent {

using core::check_node_address;
using core::PodsListen;

enum class Runner { kNone, kProcess, kContainerd };
/// Fate of the containers when run() returns.
enum class OnStop {
  kLeaveContainers,  // the next agent adopts them
  kEndContainers,    // the next agent restarts them; records and volumes stay
};

/// The end of run() without a stop request. The agent of a Job works for one run, and the operator
/// makes its EdgeNode: with kInstalled and kUnassigned the agent creates none.
enum class Until {
  kStopped,     // never
  kInstalled,   // everything of a work list with a worker is on the disk
  kUnassigned,  // the work list has no worker, or the EdgeNode is gone
};

struct Options {
  std::string node_name;
  std::string layer = "edge";  // cloud, edge, device: label on the registered Node
  os::Path data_directory;     // absolute; created if missing
  Runner runner = Runner::kNone;
  OnStop on_stop = OnStop::kLeaveContainers;
  Until until = Until::kStopped;
  std::chrono::milliseconds stop_grace{5000};  // from SIGTERM to SIGKILL, with kEndContainers
  std::map<std::string, std::string> images;   // process driver: image name -> command line
  std::string containerd_socket;               // containerd driver; "": its default
  node::PodNetwork pod_network = node::PodNetwork::kCni;  // containerd driver
  // Process driver: paths to hide besides the data directory, such as credentials or another
  // agent's data.
  std::vector<os::Path> hidden_from_pods;
  os::Path programs;  // directory of varda-serve ...; empty: that of this program
  std::map<std::string, std::string> container_environment;
  std::string node_address;  // empty: drawn at the first start and persisted
  /// kAnotherMachine: a loopback address is not reported, because on another machine it would point
  /// to that machine.
  meta::Reporter reporter = meta::Reporter::kThisMachine;
  std::vector<os::Path> file_roots;     // file URLs must lie below these
  std::vector<os::Path> dataset_roots;  // datasets must lie below these
  std::chrono::milliseconds dataset_recount{
      std::chrono::hours(24)};  // between counts of every byte
  /// Port where other nodes fetch shared files. "": port 10445 of the reported address, or a free
  /// port there. "off": none, so this node only copies files.
  std::string peer_listen;
  std::string peer_url;  // URL of that port for other nodes; "": https:// and the bound address
  /// The certificate that this node shows to other nodes. Empty: the node has no certificate, so it
  /// neither shares nor copies files.
  std::function<std::optional<identity::PeerCredentials>()> peer_credentials;
  os::Path worker_socket;     // Unix socket for the node's workers; "": no socket
  std::string worker_listen;  // as 127.0.0.1:10446; "": none. URL: DATA/worker/worker.url
  /// Opens streams of workers through the gateway at `gateway_url`. Null: the agent connects to the
  /// targets itself. Outlives the agent.
  net::TunnelOpener* gateway = nullptr;
  std::string gateway_url;                    // without a trailing slash
  std::uint64_t artifact_capacity_bytes = 0;  // 0: limited by the disk only
  artifact::Limits artifact_limits;
  std::uint64_t replica_bytes_max = std::uint64_t{256} << 30;  // limit for one copied share
  // Fetches archives, for example through a proxy. Null: the `http` of open(). Outlives the agent.
  net::HttpClient* downloads = nullptr;
  /// Makes a client like `downloads` that also trusts these certificates. Empty: Secrets with a
  /// ca.crt are refused.
  std::function<std::unique_ptr<net::HttpClient>(const std::string& ca_pem)> trusting_client;
  std::size_t install_threads = 2;
  std::chrono::milliseconds retry_first{1000};  // of failed downloads; doubles up to 5 min
  std::chrono::milliseconds poll_busy{300};     // polls of a server until it serves the target
  std::chrono::milliseconds poll_steady{2000};
  std::chrono::seconds watch_timeout{10};            // plus up to 50 % jitter; reveals dead links
  std::chrono::milliseconds link_backoff_max{5000};  // between attempts to reach the API server
  std::chrono::milliseconds progress_period{
      10000};  // between download reports; none for short ones
  std::chrono::milliseconds requests_period{
      2000};                                     // between checks for requests of `varda artifacts`
  std::chrono::milliseconds node_period{10000};  // between checks that the Node exists
  metrics::Registry* metrics = nullptr;  // varda_agent_installs_total, varda_agent_artifact_bytes,
                                         // varda_agent_models; outlives the agent
};

/// Owns its data directory: one agent at a time.
class Agent {
 public:
  /// `api` authenticates to the API server as this node. `http` fetches archives and polls model
  /// servers. Both outlive the agent. kUnavailable: another agent holds the data directory.
  /// kInvalid: a bad option; the message names it.
  static Result<std::unique_ptr<Agent>> open(Options options, const kube::Client& api,
                                             net::HttpClient& http,
                                             os::FileSystem& fs = os::real_file_system(),
                                             Rng& rng = system_rng(),
                                             os::ProcessRunner& processes = os::real_processes());
  virtual ~Agent() = default;

  virtual const std::string& node_address() const = 0;
  /// Works until the context is done or Options::until is reached, with or without an API server.
  /// Call it once. Returns success after a stop request.
  virtual Status run(const Context& ctx) = 0;
};

}  // namespace varda::agent
