// Gateway: the cloud end for nodes behind NAT. It speaks the API server's REST dialect and limits
// each node to its own objects.
//
//   TRY(auto gateway, gateway::Gateway::create({.client = &client, .sessions = &liveness}));
//   net::Server::Options listen = gateway::server_options(limits);
//   listen.tls = net::TlsServer{..., .client_ca_pem = ca};
//   TRY(auto server, net::Server::create(listen, gateway->handler()));
//
// The client certificate identifies the node (common name; organization system:nodes).
// docs/design/014-edge.md lists what a node may see and write. Lists and watches come from memory,
// fed by one upstream watch for each kind. Other reads and all writes are checked and then made
// upstream, on few threads, in turn between the nodes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/context.h"
#include "base/metrics.h"
#include "base/result.h"
#include "base/rng.h"
#include "gateway/fair_pool.h"
#include "gateway/sessions.h"
#include "gateway/streams.h"
#include "gateway/uploads.h"
#include "kube/client.h"
#include "net/http.h"
#include "net/server.h"
#include "runtime/informer.h"

namespace varda::gateway {

struct Limits {
  std::size_t body_bytes_max = 1u << 20;   // of a request: 413 beyond
  std::size_t event_bytes_max = 8u << 10;  // of an Event as JSON: 413 beyond. Ours have 1 KiB text
  /// KiB of objects that one node's writes made, to protect the API server's disk. A burst is
  /// allowed, then one KiB for each period; 429 beyond. The defaults are 4 MiB and 256 KiB/s.
  int written_kib_burst = 4096;
  Duration written_kib_period = std::chrono::microseconds(3906);
  std::size_t writers_max = 20'000;      // nodes with remembered writes
  std::size_t connections_max = 20'000;  // see net::Server::Options
  std::size_t watches_max = 20'000;      // 429 beyond
  std::size_t watches_per_node_max = 8;  // 429 beyond
  std::size_t tombstones_max = 10'000;   // deletions of one kind that watches can still receive
  /// Longest watch, even if the client asks for more. Each new watch shows that the node is still
  /// connected and still admitted.
  std::chrono::seconds watch_timeout_max{15};
  /// Longest wait of a request for the gateway's first read of its objects; then 503.
  std::chrono::milliseconds first_read_patience{8000};
  std::chrono::milliseconds session_linger{500};  // from a node's last watch to its closed()
  FairPool::Options upstream;                     // 429 beyond its queues
  /// Clients without a certificate have a separate pool: nodes never wait for them.
  FairPool::Options anonymous{.threads = 2,
                              .in_flight_per_key_max = 1,
                              .waiting_per_key_max = 64,
                              .waiting_max = 2048,
                              .bytes_max = 8u << 20};
};

/// Options for a net::Server in front of the gateway; the caller sets address and TLS.
net::Server::Options server_options(const Limits& limits = {});

/// Thread-safe.
class Gateway {
 public:
  struct Options {
    const kube::Client* client = nullptr;  // upstream, with the gateway's own identity; outlives it
    Sessions* sessions = nullptr;          // notified of connected nodes; may be null; outlives it
    /// Answers paths below /gateway/v1/ (enrolment and renewal), on a thread of a pool. It may
    /// block until its context ends. Nothing, or no function: 404.
    std::function<std::optional<net::Response>(const Context&, const net::Request&)> enrolment;
    /// Reaches the registry of `uploads`; outlives the gateway. Null: nodes upload nothing, 404.
    net::HttpClient* registry = nullptr;
    Uploads::Options uploads;
    Streams::Options streams;  // clock and metrics are filled in
    /// Receives every change of an EdgeNode, on the informer's thread. Must be quick.
    std::function<void(const runtime::Change&)> edge_node_changed;
    Limits limits;
    const Clock* clock = nullptr;          // for expiry and written KiB; null: the machine's
    Rng* rng = nullptr;                    // null: the machine's
    metrics::Registry* metrics = nullptr;  // outlives it
  };
  /// Starts to watch the API server. kInvalid: no client.
  static Result<std::unique_ptr<Gateway>> create(Options options);
  virtual ~Gateway() = default;

  /// For a net::Server, or net::loopback() with a Peer. Must not be called after the gateway is
  /// destroyed.
  virtual net::Handler handler() = 0;
  /// For net::Server::Options::receive: refuses uploads that the work list does not ask for before
  /// their bytes arrive. Quick.
  virtual net::Reception receive(const net::Request& head) = 0;
  /// True: all that watches need has been read, and the gateway is not stopping.
  virtual bool ready() const = 0;
  /// Ends every watch: clients see the end of the stream. Later watches end at once. Idempotent.
  virtual void stop() = 0;
};

}  // namespace varda::gateway
