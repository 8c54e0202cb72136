// The cloud end for nodes behind NAT: the REST dialect of the API server, cut down for each node to what is its own.
//
//   TRY(auto gateway, gateway::Gateway::create({.client = &client, .sessions = &liveness}));
//   net::Server::Options listen = gateway::server_options(limits);
//   listen.tls = net::TlsServer{..., .client_ca_pem = ca};
//   TRY(auto server, net::Server::create(listen, gateway->handler()));
//
// A node is who its client certificate says (common name; organization system:nodes). What it may see and write:
// docs/design/014-edge.md. Lists and watches are served from memory, off one upstream watch for each kind; other reads and all
// writes are checked and then made upstream, on few threads, in turn between the nodes.
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
#include "kube/client.h"
#include "net/http.h"
#include "net/server.h"
#include "runtime/informer.h"

namespace varda::gateway {

struct Limits {
  std::size_t body_bytes_max = 1u << 20;   // of a request: 413 beyond
  std::size_t event_bytes_max = 8u << 10;  // of an Event as JSON: 413 beyond. Ours have 1 KiB of message
  /// Of the objects that one node's writes made, for the sake of the API server's disk: so many KiB at once, and so long for each
  /// further one; 429 beyond. That is 4 MiB, and 256 KiB/s.
  int written_kib_burst = 4096;
  Duration written_kib_period = std::chrono::microseconds(3906);
  std::size_t writers_max = 20'000;      // nodes whose writes are remembered
  std::size_t connections_max = 20'000;  // see net::Server::Options
  std::size_t watches_max = 20'000;      // 429 beyond
  std::size_t watches_per_node_max = 8;  // 429 beyond
  std::size_t tombstones_max = 10'000;   // deletions of one kind that a watch can still be told
  /// However long a watch asks for: when it comes again is seen who is still there, and still may.
  std::chrono::seconds watch_timeout_max{15};
  /// So long a request waits at most for the gateway's first read of what it asks about; then 503.
  std::chrono::milliseconds first_read_patience{8000};
  std::chrono::milliseconds session_linger{500};  // without any watch before a node is told closed
  FairPool::Options upstream;                     // 429 beyond its queues
  /// Of those who show no certificate, apart from the nodes: however many they are, no node waits for them.
  FairPool::Options strangers{
      .threads = 2, .in_flight_per_key_max = 1, .waiting_per_key_max = 64, .waiting_max = 2048, .bytes_max = 8u << 20};
};

/// What a net::Server in front of the gateway should have; address and TLS are left to be set.
net::Server::Options server_options(const Limits& limits = {});

/// Thread-safe.
class Gateway {
 public:
  struct Options {
    const kube::Client* client = nullptr;  // upstream, with the gateway's own identity; outlives it
    Sessions* sessions = nullptr;          // told who is connected; null: nobody; outlives it
    /// Answers what lies below /gateway/v1/ (enrolment and renewal), on the threads that go upstream; it may block as long as its
    /// context lets it. Nothing, or absent: 404.
    std::function<std::optional<net::Response>(const Context&, const net::Request&)> enrolment;
    /// Told of every change of an EdgeNode, on the thread that follows them; quick.
    std::function<void(const runtime::Change&)> edge_node_changed;
    Limits limits;
    const Clock* clock = nullptr;          // of certificates' ends and of what was written; null: the machine's
    Rng* rng = nullptr;                    // null: the machine's
    metrics::Registry* metrics = nullptr;  // outlives it
  };
  /// Follows the API server from now on. kInvalid: no client.
  static Result<std::unique_ptr<Gateway>> create(Options options);
  virtual ~Gateway() = default;

  /// For a net::Server, or net::loopback() with a Peer. Must not be called any more once the gateway is destroyed.
  virtual net::Handler handler() = 0;
  /// Whether everything that watches need has been read.
  virtual bool ready() const = 0;
  /// Ends every watch (clients see the end of the stream); further ones end at once. Idempotent.
  virtual void stop() = 0;
};

}  // namespace varda::gateway
