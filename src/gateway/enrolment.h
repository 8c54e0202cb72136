// Enrolment: how a node gets its certificate, and the next one. Two requests of the gateway's port:
//
//   POST /gateway/v1/enroll {"token": "varda-join.…", "csr": "-----BEGIN CERTIFICATE REQUEST-----…", "node": "line7"}
//   POST /gateway/v1/renew  {"csr": …}     over a connection with the certificate to be renewed
//
// Both answer {"certificate", "ca", "node"}, or a Kubernetes Status. Why a token or a certificate was not accepted stands in the
// log and in the counter, not in the answer. `node` counts for the token that the agents of a DaemonSet share (join_secret.h),
// since a token of its own says itself whose it is; whoever has that secret is told why his node does not get in, unless it was
// revoked. A certificate is renewed for the node's remembered key only (node_key.h); another one is told so.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/context.h"
#include "base/metrics.h"
#include "gateway/authority.h"
#include "kube/client.h"
#include "net/http.h"

namespace varda::gateway {

/// Thread-safe.
class Enrolment {
 public:
  struct Options {
    std::chrono::milliseconds upstream_timeout{10000};
    int failures_in_a_row = 10;                      // of one token at one address, or of one node with a certificate; then 429 ...
    std::chrono::milliseconds failure_period{6000};  // ... until so much time has passed for each
    int address_failures_in_a_row = 100;             // of one address without a certificate, whatever its tokens
    std::chrono::milliseconds address_failure_period{600};
    std::size_t remembered_max = 4096;           // addresses; and as many tokens and nodes
    std::optional<meta::ObjectKey> join_secret;  // where the token stands that agents share; absent: there is none
    const Clock* clock = nullptr;                // the machine's
    metrics::Registry* metrics = nullptr;        // varda_gateway_enrolments_total{request, outcome}; outlives the object
  };
  /// `upstream` may read and write Secrets of varda-system and read EdgeNodes; with a join_secret also that one, Nodes, and the
  /// Pods of its namespace. Both outlive the object.
  Enrolment(const kube::Client& upstream, const Authority& authority, Options options);
  ~Enrolment();

  /// Does handle() answer this? Cheap; for choosing the thread.
  static bool is_for(const net::Request& request);
  /// Asks upstream, so it blocks: on a pool. Nothing: the path is none of the two.
  std::optional<net::Response> handle(const Context& ctx, const net::Request& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::gateway
