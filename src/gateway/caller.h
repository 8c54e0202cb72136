// Who asks the gateway: a node is who its client certificate says it is, and nobody else is anybody.
#pragma once

#include <string>
#include <string_view>

#include "api/edgeai/revocation.h"
#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "meta/node_address.h"
#include "net/http.h"

namespace varda::gateway {

inline constexpr std::string_view kNodesOrganization = "system:nodes";
using api::kRevokedAnnotation;
/// The common name of an X.509 certificate has no more (RFC 5280, ub-common-name).
inline constexpr std::size_t kNodeNameBytesMax = 64;

struct Caller {
  std::string node;
  bool expired = false;  // its certificate has ended: it may ask for a new one, and for nothing else
};

/// By the certificate that the connection was opened with, as of `now`: connections outlive certificates. kUnauthenticated: none
/// was shown. kForbidden: it is no node's (O = system:nodes alone, CN = a node's name).
Result<Caller> caller_of(const net::Peer& peer, WallTime now);

/// The node's name, for whatever is not a renewal. Further: kUnauthenticated when the certificate has ended, which tells the agent
/// to renew it.
Result<std::string> node_of(const net::Peer& peer, WallTime now);

/// Whether loopback addresses mean the same to the node and to this machine: the connection itself comes from one.
meta::Reporter reporter_of(const net::Peer& peer);

/// Was the node shut out, with the annotation edgeai.io/revoked: "true" on its EdgeNode? Such a node gets 403 for everything. No
/// EdgeNode (null): no.
bool is_revoked(const codec::Json& edge_node);

}  // namespace varda::gateway
