// Enrolment: gives a node its certificate, and the next one. Two requests on the gateway's port:
//
//   POST /gateway/v1/enroll {"token": "varda-join.…", "csr": CSR, "node": "line7"}
//   POST /gateway/v1/renew  {"csr": CSR}    over a connection with the certificate to be renewed
//
// CSR is a certificate request as PEM.
//
// Both answer {"certificate", "ca", "node"}, or a Kubernetes Status. The reason for a refused token
// or certificate is in the log and in the counter, not in the answer. `node` counts only with the
// token that the agents of a DaemonSet share (join_secret.h); any other token names its node. A
// caller with the shared secret does get the reason for a refused node, unless that token is
// revoked. The agent of a Job (api/edgeai/job_node.h) names its node, too: the EdgeNode has the
// digest of its token. Renewal is only for the node's remembered key (node_key.h); for another key
// the answer gives the reason.
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
    int failures_in_a_row = 10;                      // of a token or node at one address; then 429
    std::chrono::milliseconds failure_period{6000};  // until this time passed for each failure
    int address_failures_in_a_row = 100;             // of all tokens together, at one address
    std::chrono::milliseconds address_failure_period{600};
    std::size_t remembered_max = 4096;           // addresses; the same for tokens or nodes
    std::optional<meta::ObjectKey> join_secret;  // Secret with the agents' shared token, if any
    const Clock* clock = nullptr;                // null: the machine's
    metrics::Registry* metrics =
        nullptr;  // varda_gateway_enrolments_total{request, outcome}; outlives the object
  };
  /// `upstream` needs rights to read and write Secrets of varda-system and to read EdgeNodes. A
  /// join_secret adds the rights to read that Secret, Nodes, and Pods of its namespace. `upstream`
  /// and `authority` outlive the object.
  Enrolment(const kube::Client& upstream, const Authority& authority, Options options);
  ~Enrolment();

  /// True: handle() answers this path. Cheap, for choosing the thread.
  static bool is_for(const net::Request& request);
  /// Blocks on requests upstream, so call it on a pool. Nothing: another path.
  std::optional<net::Response> handle(const Context& ctx, const net::Request& request);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace varda::gateway
