// Streams: TCP connections of workers behind NAT to targets that their node's work list names
// (docs/design/029-streams.md).
//
//   Streams streams({.sign = [&](net::ProxyHeader& header) { return authority.sign(header, now);
//   }}); if (Streams::is_for(request)) streams.serve("edge0", edge_node, std::move(request),
//   respond); streams.changed("edge0", edge_node);   // after each change of the EdgeNode
//
// A node sends GET /v1/streams?worker=NAMESPACE/NAME&stream=NAME with an upgrade to varda-stream.
// The address comes from the EdgeNode, never from the request.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/metrics.h"
#include "base/mutex.h"
#include "codec/json.h"
#include "gateway/internal/allowance.h"
#include "net/destinations.h"
#include "net/http.h"
#include "net/pair_slots.h"
#include "net/proxy_protocol.h"
#include "net/splicer.h"

namespace varda::gateway {

/// Thread-safe. Destroying it ends all streams. Outlives the server whose requests it serves.
class Streams {
 public:
  struct Options {
    std::size_t per_node_max = 64;                            // 429 beyond
    std::size_t all_max = 4096;                               // 429 beyond
    int opened_burst = 64;                                    // by one node at once; 429 beyond
    Duration opened_period = std::chrono::milliseconds(250);  // then one for each period
    std::size_t threads = 1;                                  // that copy bytes
    std::chrono::milliseconds connect_timeout{5000};          // of the target
    std::chrono::milliseconds idle_timeout{600000};
    /// Signs an identity for 60 s, see Authority::sign(). Empty: streams with an identity get 503.
    std::function<Status(net::ProxyHeader&)> sign;
    /// Addresses that no stream leads to, because the nodes of the pods report them. Absent: all
    /// addresses are allowed.
    std::optional<net::Destinations> targets;
    const Clock* clock = nullptr;          // for the end of certificates; null: the machine's
    metrics::Registry* metrics = nullptr;  // outlives it
  };
  explicit Streams(Options options);
  ~Streams();

  /// True for the path /v1/streams.
  static bool is_for(const net::Request& request);

  /// A stream that a work list allows.
  struct Target {
    std::string worker, stream;
    std::string uid;      // of the job
    std::string address;  // "": not known yet
    bool identity = false;
    std::string grant() const;
  };
  static std::optional<Target> find_target(const codec::Json& edge_node, std::string_view worker,
                                           std::string_view stream);
  /// Target::grant() of all streams of the work list.
  static std::set<std::string> grants_of(const codec::Json& edge_node);

  /// The present EdgeNode. Nothing: it is missing or revoked.
  using EdgeNodeOf = std::function<std::optional<codec::Json>()>;
  /// Never blocks.
  void serve(const std::string& node, const EdgeNodeOf& edge_node, net::Request request,
             net::Responder respond);
  /// Ends the node's streams that the EdgeNode no longer allows. Cheap for a node without streams.
  void changed(const std::string& node, const EdgeNodeOf& edge_node);
  std::size_t open() const { return slots_.size(); }
  /// Ends all streams. Idempotent.
  void stop();

 private:
  struct Stream;
  bool may_open(const std::string& node) EXCLUDES(mutex_);
  /// Why the stream cannot be opened now, whatever its target does.
  std::optional<net::Response> obstacle(const Target& target) const;
  void dialed(const std::shared_ptr<Stream>& stream, net::Responder& respond,
              Result<std::unique_ptr<net::Tunnel>> target);
  void start(const std::shared_ptr<Stream>& stream, std::unique_ptr<net::Tunnel> client);
  void ended(const Stream& stream, const net::Splicer::Report& report);
  Result<std::string> header_of(const Stream& stream) const;

  const Options options_;
  const Clock& clock_;
  Mutex mutex_;
  internal::Allowance opened_ GUARDED_BY(mutex_);
  metrics::Counter* up_bytes_ = nullptr;
  metrics::Counter* down_bytes_ = nullptr;
  net::Splicer splicer_;
  net::PairSlots slots_;
};

}  // namespace varda::gateway
