// Caller: the node behind a connection, as its client certificate names it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "api/edgeai/revocation.h"
#include "base/clock.h"
#include "base/result.h"
#include "codec/json.h"
#include "gateway/layer.h"
#include "meta/node_address.h"
#include "net/http.h"

namespace varda::gateway {

inline constexpr std::string_view kNodesOrganization = "system:nodes";
using api::kRevokedAnnotation;
/// The longest common name of an X.509 certificate (RFC 5280, ub-common-name).
inline constexpr std::size_t kNodeNameBytesMax = 64;

struct Caller {
  std::string node;
  bool expired = false;             // the certificate has ended: only a renewal is allowed
  std::optional<Layer> layer = {};  // nothing: the certificate is older than layers (edge)
};

/// Reads the certificate of the connection as of `now`, since connections outlive certificates.
/// kUnauthenticated: no certificate. kForbidden: not a node's certificate (O is system:nodes alone,
/// OU is a layer or absent, CN is a node's name).
Result<Caller> caller_of(const net::Peer& peer, WallTime now);

/// Like caller_of(), for all requests but renewals. kUnauthenticated also if the certificate has
/// ended; the agent then renews it.
Result<Caller> node_of(const net::Peer& peer, WallTime now);

/// Compares the layer of the certificate with the layer on record (node_key.h). kUnauthenticated:
/// they differ. The agent then renews a certificate without a layer, or enrols with a new join
/// token.
Status check_layer(const Caller& caller, Layer on_record);

/// kThisMachine if the connection comes from a loopback address. Only then do loopback addresses
/// mean the same to the node and to this machine.
meta::Reporter reporter_of(const net::Peer& peer);

/// True: the EdgeNode has the annotation edgeai.io/revoked: "true". Such a node gets 403 for
/// everything. False without an EdgeNode (null).
bool is_revoked(const codec::Json& edge_node);

}  // namespace varda::gateway
