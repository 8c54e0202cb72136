// Uploads: files that nodes send to the registry through the gateway (docs/design/025-uploads.md),
// and relayed files that nodes read from there (docs/design/015-replication.md).
//
//   gateway::Uploads uploads(*http, {.registry = {.url = "http://127.0.0.1:8090", .token =
//   token}}); if (Uploads::is_for(request)) uploads.serve("edge0", limit, std::move(request),
//   respond);
//
// A node sends PUT, HEAD and GET /v1/blobs/sha256:HEX, the protocol of the registry, in pieces of
// at most 1 MiB. A piece is in memory until the registry has answered. GET .../sha256:HEX.chunks
// reads a list of chunks, also in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "base/metrics.h"
#include "base/result.h"
#include "codec/json.h"
#include "gateway/fair_pool.h"
#include "net/http.h"
#include "registry/client.h"

namespace varda::gateway {

/// Largest blob of a relayed snapshot: blocks have at most 16 MiB, so only the list of blocks of a
/// huge snapshot has this size.
inline constexpr std::uint64_t kRelayedBytesMax = 256u << 20;

/// The rights that a work list gives to the node.
struct BlobRights {
  std::uint64_t upload_bytes_max = 0;  // of each file; 0: no uploads
  bool reads = false;                  // by digest, which the node must know
  friend bool operator==(const BlobRights&, const BlobRights&) = default;
};

/// Thread-safe. Destroying it ends requests to the registry, and drops waiting ones.
class Uploads {
 public:
  struct Options {
    registry::Target registry;
    std::size_t piece_bytes_max = 1u << 20;  // of one request: 413 beyond
    FairPool::Options pool{.threads = 4,
                           .in_flight_per_key_max = 1,
                           .waiting_per_key_max = 2,
                           .waiting_max = 1024,
                           .bytes_max = 32u << 20};  // 503 beyond
    metrics::Registry* metrics = nullptr;            // outlives it
  };
  /// `http` outlives it.
  Uploads(net::HttpClient& http, Options options);
  ~Uploads() { stop_.request_stop(); }

  /// True for requests below /v1/blobs/.
  static bool is_for(const net::Request& request);
  /// Uploads are the right of a worker with `uploads` and of a relayed share, reads that of a
  /// relayed replica.
  static BlobRights rights_of(const codec::Json& edge_node);

  /// The refusal of a request by its header, before its body arrives. Nothing: allowed.
  std::optional<net::Response> refusal(const std::string& node, const BlobRights& rights,
                                       const net::Request& head) const;
  /// Checks the request and forwards it to the registry, on a thread of its own. `rights` runs
  /// there, too, and returns rights_of() the node's present EdgeNode.
  void serve(const std::string& node, std::function<Result<BlobRights>()> rights,
             net::Request request, net::Responder respond);

 private:
  std::optional<net::Response> range_refusal(const net::Request& head) const;
  net::Response forward(const net::Request& request);

  net::HttpClient& http_;
  const Options options_;
  metrics::Counter* bytes_ = nullptr;
  std::stop_source stop_;
  FairPool pool_;  // destroyed first: its work uses the rest
};

}  // namespace varda::gateway
